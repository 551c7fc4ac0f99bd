//! From an address to a route.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ibverbs::{Error, ErrorKind, Result};

use super::{Resolved, Resolving, Route};
use crate::address::{self, AddrInfo, Address, IbAddr, PortSpace};
use crate::id::{Id, IdOptions};
use crate::progress::InProgress;

/// Finds the device and the route to a peer.
///
/// # Example
/// ```no_run
/// use std::time::Duration;
/// let route = rdmacm::Resolver::new("10.99.0.1:7471".parse()?)
///     .timeout(Duration::from_secs(1))
///     .resolve()?;
/// println!("over {} port {}", route.device_name(), route.port_num());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # References
/// [`rdma_resolve_addr(3)`](https://man7.org/linux/man-pages/man3/rdma_resolve_addr.3.html),
/// [`rdma_resolve_route(3)`](https://man7.org/linux/man-pages/man3/rdma_resolve_route.3.html)
#[derive(Clone, Debug)]
#[must_use = "a resolver does nothing until `resolve`"]
pub struct Resolver {
    peer: Address,
    source: Option<Address>,
    device: Option<String>,
    timeout: Duration,
    port_space: Option<PortSpace>,
    options: IdOptions,
}

impl Resolver {
    /// For `peer`, an IPv4 or IPv6 address and the port that it listens on.
    pub fn new(peer: SocketAddr) -> Self {
        Self::to(peer.into())
    }

    /// For `peer`, the GID and service number of an InfiniBand port (`AF_IB`).
    pub fn new_ib(peer: IbAddr) -> Self {
        Self::to(peer.into())
    }

    pub(crate) fn to(peer: Address) -> Self {
        let timeout = Duration::from_secs(2);
        Self {
            peer,
            source: None,
            device: None,
            timeout,
            port_space: None,
            options: IdOptions::default(),
        }
    }

    /// From this local address, and so over the device that has it. Without, the system's routing
    /// chooses.
    pub fn source(self, source: IpAddr) -> Self {
        self.source_addr(SocketAddr::new(source, 0))
    }

    /// From this local address and port; port 0 lets the system choose.
    pub fn source_addr(mut self, source: SocketAddr) -> Self {
        self.source = Some(source.into());
        self
    }

    /// From this local GID, to a peer given by its own.
    pub fn source_ib(mut self, source: IbAddr) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Over this device: from the first of its addresses that is of the peer's family.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// How long each of the two steps, address and route, may take; 2 s if not given.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Of another port space than TCP for connections and UDP for datagrams.
    pub fn port_space(mut self, port_space: PortSpace) -> Self {
        self.port_space = Some(port_space);
        self
    }

    /// The type of service: the traffic class of packets on RoCE v2 (DSCP in the upper six bits),
    /// the service level by the subnet manager's rules on InfiniBand, that of the TCP
    /// connection on iWARP.
    ///
    /// # References
    /// [`rdma_set_option(3)`](https://man7.org/linux/man-pages/man3/rdma_set_option.3.html)
    pub fn type_of_service(mut self, type_of_service: u8) -> Self {
        self.options.type_of_service = Some(type_of_service);
        self
    }

    /// Lets several identifiers have the same source address and port, as `SO_REUSEADDR` does.
    pub fn reuse_address(mut self, reuse: bool) -> Self {
        self.options.reuse_address = Some(reuse);
        self
    }

    /// How long the queue pair waits for an acknowledgement before it sends again: 4.096 µs ×
    /// 2^`ack_timeout`, 0 to 31. Without, the kernel computes it from the path. Of connections
    /// on InfiniBand and RoCE.
    pub fn ack_timeout(mut self, ack_timeout: u8) -> Self {
        self.options.ack_timeout = Some(ack_timeout);
        self
    }

    /// Resolves the address to a device, then the route to the peer. Nothing is sent to the peer's
    /// program yet.
    ///
    /// # Errors
    /// - [`ErrorKind::NotFound`]: no RDMA device has the address (`ENODEV`); the text names the
    ///   devices there are;
    /// - [`ErrorKind::TimedOut`]: nobody answers for the address on the local network;
    /// - `ENETUNREACH`: no route.
    ///
    /// # References
    /// [`rdma_resolve_addr(3)`](https://man7.org/linux/man-pages/man3/rdma_resolve_addr.3.html),
    /// [`rdma_resolve_route(3)`](https://man7.org/linux/man-pages/man3/rdma_resolve_route.3.html)
    pub fn resolve(self) -> Result<Route> {
        let limit = Resolving::<Route>::limit(self.timeout);
        self.start()?.wait(Some(limit))
    }

    /// Begins to resolve, and does not wait.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve), as far as they are known at once.
    ///
    /// # References
    /// [`rdma_resolve_addr(3)`](https://man7.org/linux/man-pages/man3/rdma_resolve_addr.3.html)
    pub fn start(self) -> Result<Resolving<Route>> {
        self.begin()
    }

    pub(crate) fn peer(&self) -> Address {
        self.peer
    }

    pub(crate) fn step_timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn begin<R: Resolved>(self) -> Result<Resolving<R>> {
        let (id, source) = self.create_id(R::PORT_SPACE)?;
        id.resolve_addr(source, self.peer, self.timeout)?;
        Ok(Resolving::new(id, self.peer, self.timeout))
    }

    /// An identifier with the options given, and the source it shall have.
    pub(crate) fn create_id(&self, usual: PortSpace) -> Result<(Id, Option<Address>)> {
        let source = match &self.device {
            Some(device) => Some(address::device::choose(device, self.peer, self.source)?),
            None => self.source,
        };
        if let Some(source) = source.filter(|source| !source.is_same_family(self.peer)) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "rdma_resolve_addr",
                format!("{} from {source}: addresses of two families", self.peer),
            ));
        }
        let port_space = self.port_space.unwrap_or(usual);
        if port_space.is_datagram() != usual.is_datagram() {
            let what = format!(
                "{}: port space {port_space} in the place of {usual}",
                self.peer
            );
            return Err(Error::new(ErrorKind::InvalidInput, "rdma_create_id", what)
                .with_hint("TCP and IB are of connections, UDP and IPoIB of datagrams"));
        }
        let id = Id::create(port_space)?;
        self.options.apply(&id, &self.peer)?;
        Ok((id, source))
    }
}

impl AddrInfo {
    /// A resolver to the destination, from the source where there is one; `None` without a
    /// destination.
    pub fn resolver(&self) -> Option<Resolver> {
        let resolver = Resolver::new(self.destination?).port_space(self.port_space);
        Some(match self.source {
            Some(source) => resolver.source_addr(source),
            None => resolver,
        })
    }
}
