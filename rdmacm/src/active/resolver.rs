//! Resolution of an address to a device and a route.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ibverbs::{Error, ErrorKind, Result};

use super::{Resolved, Resolving, Route};
use crate::address::{self, AddrInfo, Address, IbAddr, PortSpace};
use crate::event::EventChannel;
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
/// println!("device {} port {}", route.device_name(), route.port_num());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "rdma_resolve_addr")]
#[doc(alias = "rdma_resolve_route")]
#[derive(Clone, Debug)]
#[must_use = "a resolver does nothing until `resolve`"]
pub struct Resolver {
    peer: Address,
    source: Option<Address>,
    device: Option<String>,
    timeout: Duration,
    port_space: Option<PortSpace>,
    options: IdOptions,
    channel: Option<EventChannel>,
}

impl Resolver {
    /// Creates a resolver for `peer`, an IPv4 or IPv6 address and the port on which the peer
    /// listens.
    pub fn new(peer: SocketAddr) -> Self {
        Self::with_peer(peer.into())
    }

    /// Creates a resolver for `peer`, the GID and the service ID of an InfiniBand port (`AF_IB`).
    pub fn new_ib(peer: IbAddr) -> Self {
        Self::with_peer(peer.into())
    }

    pub(crate) fn with_peer(peer: Address) -> Self {
        let timeout = Duration::from_secs(2);
        Self {
            peer,
            source: None,
            device: None,
            timeout,
            port_space: None,
            options: IdOptions::default(),
            channel: None,
        }
    }

    /// Sets the local IP address, which determines the device. By default the system's routing
    /// table selects it.
    pub fn source(self, source: IpAddr) -> Self {
        self.source_addr(SocketAddr::new(source, 0))
    }

    /// Sets the local IP address and port. With port 0 the system selects the port.
    pub fn source_addr(mut self, source: SocketAddr) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets the local GID, for a peer with an `AF_IB` address.
    pub fn source_ib(mut self, source: IbAddr) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets the device. The source is then its first address of the peer's family.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// Sets the time limit of each of the two steps, address and route resolution. The default is
    /// 2 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the port space. The default is TCP for connections and UDP for datagrams.
    pub fn port_space(mut self, port_space: PortSpace) -> Self {
        self.port_space = Some(port_space);
        self
    }

    /// Delivers the events on a shared channel, from the resolution to the end of the connection or
    /// membership: see [`EventChannel`].
    pub fn channel(mut self, channel: &EventChannel) -> Self {
        self.channel = Some(channel.clone());
        self
    }

    /// Sets the type of service. On RoCE v2 it is the traffic class of packets (DSCP in the upper
    /// six bits). On InfiniBand the subnet manager maps it to a service level. On iWARP it is the
    /// type of service of the TCP connection.
    #[doc(alias = "rdma_set_option")]
    pub fn type_of_service(mut self, type_of_service: u8) -> Self {
        self.options.type_of_service = Some(type_of_service);
        self
    }

    /// Allows several identifiers to use the same source address and port, like `SO_REUSEADDR`.
    pub fn reuse_address(mut self, reuse: bool) -> Self {
        self.options.reuse_address = Some(reuse);
        self
    }

    /// Sets the acknowledgement timeout of the queue pair to 4.096 µs × 2^`ack_timeout`, with a
    /// value from 0 to 31. By default the kernel computes it from the path. Applies to connections
    /// on InfiniBand and RoCE.
    pub fn ack_timeout(mut self, ack_timeout: u8) -> Self {
        self.options.ack_timeout = Some(ack_timeout);
        self
    }

    /// Resolves the address to a device and then the route to the peer. Nothing is sent to the
    /// peer's application yet.
    ///
    /// # Errors
    /// - [`ErrorKind::NotFound`]: no RDMA device has the address (`ENODEV`). The message lists the
    ///   available devices.
    /// - [`ErrorKind::TimedOut`]: no host on the local network has the address.
    /// - `ENETUNREACH`: there is no route to the address.
    #[doc(alias = "rdma_resolve_addr")]
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve(self) -> Result<Route> {
        let limit = Resolving::<Route>::limit(self.timeout);
        self.start()?.wait(Some(limit))
    }

    /// Starts to resolve without waiting for the result.
    ///
    /// # Errors
    /// Same as [`resolve`](Self::resolve), if the failure is immediate.
    #[doc(alias = "rdma_resolve_addr")]
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
        Resolving::start(id, source, self.peer, self.timeout)
    }

    /// Creates an identifier with these options, and returns it with its source address.
    pub(crate) fn create_id(&self, default_space: PortSpace) -> Result<(Id, Option<Address>)> {
        let source = match &self.device {
            Some(device) => Some(address::device::choose(device, self.peer, self.source)?),
            None => self.source,
        };
        if let Some(source) = source.filter(|source| !source.is_same_family(self.peer)) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "rdma_resolve_addr",
                format!(
                    "{} from {source}: the addresses are of different families",
                    self.peer
                ),
            ));
        }
        let port_space = self.port_space.unwrap_or(default_space);
        if port_space.is_datagram() != default_space.is_datagram() {
            let detail = format!(
                "{}: port space {port_space} instead of {default_space}",
                self.peer
            );
            return Err(
                Error::new(ErrorKind::InvalidInput, "rdma_create_id", detail)
                    .with_help("use TCP or IB for connections, UDP or IPoIB for datagrams"),
            );
        }
        let id = Id::create(port_space, self.channel.as_ref())?;
        self.options.apply(&id, &self.peer)?;
        Ok((id, source))
    }
}

impl AddrInfo {
    /// Returns a resolver for these addresses, or `None` if there is no destination.
    pub fn resolver(&self) -> Option<Resolver> {
        let peer = self.destination.map(Address::from);
        let peer = peer.or(self.destination_ib.map(Address::from));
        let resolver = Resolver::with_peer(peer?).port_space(self.port_space);
        Some(match self.source {
            Some(source) => resolver.source_addr(source),
            None => resolver,
        })
    }
}
