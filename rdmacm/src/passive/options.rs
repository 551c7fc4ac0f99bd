//! Options of listeners.

use std::net::SocketAddr;

use ibverbs::{Errno, Error, ErrorKind, Result};

use crate::address;
use crate::address::{Address, IbAddr, PortSpace};
use crate::event::EventChannel;
use crate::id::{Id, IdOptions};
use crate::passive::{Listener, ListeningId};

/// Maximum number of ports that are tried if the system selects the port. Soft-iWARP cannot use the
/// selected one if TCP does (`docs/drivers.md`, fault 64).
const MAX_PORTS: u32 = 16;

/// Options for listening for connect requests ([`bind`](Self::bind)) or for requests to a datagram
/// service ([`bind_datagram`](Self::bind_datagram)).
///
/// # Example
/// ```no_run
/// use rdmacm::ListenOptions;
/// let listener = ListenOptions::new()
///     .backlog(256)
///     .device("rxe0")
///     .reuse_address(true)
///     .bind("0.0.0.0:7471".parse()?)?;
/// println!("listening on {}", listener.local_addr());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "rdma_listen")]
#[doc(alias = "rdma_bind_addr")]
#[derive(Clone, Debug)]
#[must_use = "options do nothing until `bind`"]
pub struct ListenOptions {
    backlog: u16,
    device: Option<String>,
    port_space: Option<PortSpace>,
    options: IdOptions,
    channel: Option<EventChannel>,
    accept_on: Option<EventChannel>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl ListenOptions {
    /// Creates options with a backlog of 128, any device, and the system's defaults.
    pub fn new() -> Self {
        Self {
            backlog: 128,
            device: None,
            port_space: None,
            options: IdOptions::default(),
            channel: None,
            accept_on: None,
        }
    }

    /// Sets the maximum number of requests that wait to be accepted, at least 1. The kernel rejects
    /// or ignores more.
    ///
    /// A shared [`channel`](Self::channel) reads requests from the kernel before they are accepted.
    /// It keeps as many requests of this listener as the backlog allows, in addition to those in
    /// the kernel, and rejects more. The peer can connect again later.
    pub fn backlog(mut self, backlog: u16) -> Self {
        self.backlog = backlog;
        self
    }

    /// Sets the device. An unspecified address is then replaced by the device's first address of
    /// that family.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// Sets the port space. The default is TCP for connections and UDP for datagrams.
    pub fn port_space(mut self, port_space: PortSpace) -> Self {
        self.port_space = Some(port_space);
        self
    }

    /// Sets the type of service of accepted connections: see
    /// [`Resolver::type_of_service`](crate::Resolver::type_of_service).
    pub fn type_of_service(mut self, type_of_service: u8) -> Self {
        self.options.type_of_service = Some(type_of_service);
        self
    }

    /// Allows several identifiers to use the same address and port if only one of them listens,
    /// like `SO_REUSEADDR`.
    pub fn reuse_address(mut self, reuse: bool) -> Self {
        self.options.reuse_address = Some(reuse);
        self
    }

    /// Restricts a listener on `::` to IPv6, so that another one can use the same port for IPv4.
    #[doc(alias = "rdma_set_option")]
    pub fn af_only(mut self, af_only: bool) -> Self {
        self.options.af_only = Some(af_only);
        self
    }

    /// Sets the acknowledgement timeout of accepted connections: see
    /// [`Resolver::ack_timeout`](crate::Resolver::ack_timeout).
    pub fn ack_timeout(mut self, ack_timeout: u8) -> Self {
        self.options.ack_timeout = Some(ack_timeout);
        self
    }

    /// Delivers the requests on a shared channel: see [`EventChannel`]. Accepted connections start
    /// on channels of their own, unless [`accept_on`](Self::accept_on) names one.
    pub fn channel(mut self, channel: &EventChannel) -> Self {
        self.channel = Some(channel.clone());
        self
    }

    /// Delivers the events of accepted connections on a shared channel, from the connect request
    /// on: see [`EventChannel`]. It can be the listener's [`channel`](Self::channel), and does not
    /// have to be.
    pub fn accept_on(mut self, channel: &EventChannel) -> Self {
        self.accept_on = Some(channel.clone());
        self
    }

    /// Listens for connect requests on an address of one device, or on an unspecified address
    /// (`0.0.0.0`, `::`) of all devices. With port 0 the system selects the port.
    ///
    /// # Errors
    /// `EADDRINUSE` if the port is in use. `EADDRNOTAVAIL` if this host does not have the address.
    /// `ENODEV` if no RDMA device has it. The message includes a remedy.
    #[doc(alias = "rdma_bind_addr")]
    #[doc(alias = "rdma_listen")]
    pub fn bind(&self, address: SocketAddr) -> Result<Listener> {
        Ok(Listener::new(self.listen(address.into(), PortSpace::TCP)?))
    }

    /// Listens for connect requests on a GID and a service ID (`AF_IB`).
    ///
    /// # Errors
    /// Same as [`bind`](Self::bind).
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind_ib(&self, address: IbAddr) -> Result<Listener> {
        Ok(Listener::new(self.listen(address.into(), PortSpace::TCP)?))
    }

    pub(crate) fn listen(&self, address: Address, default_space: PortSpace) -> Result<ListeningId> {
        let port_space = self.port_space.unwrap_or(default_space);
        if port_space.is_datagram() != default_space.is_datagram() {
            let detail = format!("{address}: port space {port_space} instead of {default_space}");
            return Err(
                Error::new(ErrorKind::InvalidInput, "rdma_create_id", detail)
                    .with_help("use TCP or IB for connections, UDP or IPoIB for datagrams"),
            );
        }
        let address = match (&self.device, address) {
            (None, address) => address,
            (Some(device), Address::Ip(ip)) => {
                let requested = (!ip.ip().is_unspecified()).then_some(address);
                match address::device::choose(device, address, requested)? {
                    Address::Ip(mut own) => {
                        own.set_port(ip.port());
                        own.into()
                    }
                    own @ Address::Ib(_) => own,
                }
            }
            (Some(device), Address::Ib(_)) => {
                address::device::choose(device, address, Some(address))?
            }
        };
        let selects_port = matches!(address, Address::Ip(ip) if ip.port() == 0);
        let mut left = if selects_port { MAX_PORTS } else { 1 };
        loop {
            left -= 1;
            match self.listen_on(address, port_space) {
                Err(error) if left > 0 && error.errno() == Some(Errno(libc::EADDRINUSE)) => {}
                result => return result,
            }
        }
    }

    fn listen_on(&self, address: Address, port_space: PortSpace) -> Result<ListeningId> {
        let id = Id::create(port_space, self.channel.as_ref())?;
        self.options.apply(&id, &address)?;
        id.bind(address)?;
        if let (true, Some(local)) = (port_space.is_datagram(), id.local_addr()) {
            // Without a device the listener is bound to all addresses, and each request is checked
            // separately.
            if let Ok(path) = id.path_to("rdma_listen", local) {
                path.check_datagram("rdma_listen")?;
            }
        }
        id.listen(self.backlog, &address)?;
        Ok(ListeningId::new(id, address, self.accept_on.clone()))
    }
}

impl Listener {
    /// Listens on an address of one device, or on an unspecified address (`0.0.0.0`, `::`) of all
    /// devices. With port 0 the system selects the port. [`ListenOptions`] has more options.
    ///
    /// `backlog` is the maximum number of requests that wait to be accepted, at least 1. The kernel
    /// rejects or ignores more.
    ///
    /// # Errors
    /// Same as [`ListenOptions::bind`].
    ///
    /// # Example
    /// ```no_run
    /// let listener = rdmacm::Listener::bind("10.99.0.1:0".parse()?, 16)?;
    /// println!("listening on {}", listener.local_addr()); // with the port selected by the system
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "rdma_listen")]
    pub fn bind(address: SocketAddr, backlog: u16) -> Result<Self> {
        ListenOptions::new().backlog(backlog).bind(address)
    }
}
