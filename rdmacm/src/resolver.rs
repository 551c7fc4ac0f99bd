//! From an address to a route.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ibverbs::{Error, ErrorKind, Result};

use crate::deadline::Deadline;
use crate::error::ConnectError;
use crate::event::CmEventType;
use crate::id::Id;
use crate::route::Route;

/// How much longer than the kernel this side waits, so that the kernel's reason arrives.
const GRACE: Duration = Duration::from_millis(500);

/// Finds the device and the route to a peer.
///
/// # Example
/// ```no_run
/// use std::time::Duration;
/// let route = rdmacm::Resolver::new("10.99.0.1:7471".parse()?).timeout(Duration::from_secs(1)).resolve()?;
/// println!("over {} port {}", route.device_name(), route.port_num());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a resolver does nothing until `resolve`"]
pub struct Resolver {
    peer: SocketAddr,
    source: Option<SocketAddr>,
    timeout: Duration,
}

impl Resolver {
    /// For a connection to `peer`, an IPv4 or IPv6 address and the port that it listens on.
    pub fn new(peer: SocketAddr) -> Self {
        Self { peer, source: None, timeout: Duration::from_secs(2) }
    }

    /// From this local address, and so over the device that has it. Without, the system's routing chooses.
    pub fn source(mut self, source: IpAddr) -> Self {
        self.source = Some(SocketAddr::new(source, 0));
        self
    }

    /// How long each of the two steps, address and route, may take; 2 s if not given.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Resolves the address to a device, then the route to the peer. Nothing is sent to the peer's program yet.
    ///
    /// # Errors
    /// - [`ErrorKind::NotFound`]: no RDMA device has the address (`ENODEV`); the text names the devices there are;
    /// - [`ErrorKind::TimedOut`]: nobody answers for the address on the local network;
    /// - `ENETUNREACH`: no route.
    ///
    /// # References
    /// [`rdma_resolve_addr(3)`](https://man7.org/linux/man-pages/man3/rdma_resolve_addr.3.html),
    /// [`rdma_resolve_route(3)`](https://man7.org/linux/man-pages/man3/rdma_resolve_route.3.html)
    pub fn resolve(self) -> Result<Route> {
        if let Some(source) = self.source.filter(|source| source.is_ipv4() != self.peer.is_ipv4()) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "rdma_resolve_addr",
                format!("{} from {}: addresses of two families", self.peer, source.ip()),
            ));
        }
        let id = Id::create()?;
        id.resolve_addr(self.source, self.peer, self.timeout)?;
        self.step(&id, "rdma_resolve_addr", CmEventType::ADDR_RESOLVED)?;
        id.resolve_route(self.timeout, &self.peer)?;
        self.step(&id, "rdma_resolve_route", CmEventType::ROUTE_RESOLVED)?;
        let path = id.path("rdma_resolve_route")?;
        Ok(Route::new(id, path))
    }

    fn step(&self, id: &Id, verb: &'static str, wanted: CmEventType) -> Result<()> {
        let deadline = Deadline::after(self.timeout.saturating_add(GRACE));
        let event = id.expect_event(verb, &self.peer, deadline)?;
        if event.event_type() == wanted {
            return Ok(());
        }
        Err(ConnectError::from_event(verb, &self.peer, &event).into())
    }
}
