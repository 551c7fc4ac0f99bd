//! How to listen.

use std::net::SocketAddr;

use ibverbs::{Error, ErrorKind, Result};

use crate::address;
use crate::address::{Address, IbAddr, PortSpace};
use crate::event::EventChannel;
use crate::id::{Id, IdOptions};
use crate::passive::{Listener, ListeningId};

/// How to listen, for connections ([`bind`](Self::bind)) or for those who look for a service of
/// datagrams ([`bind_datagram`](Self::bind_datagram)).
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
///
/// # References
/// [`rdma_listen(3)`](https://man7.org/linux/man-pages/man3/rdma_listen.3.html),
/// [`rdma_bind_addr(3)`](https://man7.org/linux/man-pages/man3/rdma_bind_addr.3.html)
#[derive(Clone, Debug)]
#[must_use = "nothing listens until `bind`"]
pub struct ListenOptions {
    backlog: u16,
    device: Option<String>,
    port_space: Option<PortSpace>,
    options: IdOptions,
    channel: Option<EventChannel>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl ListenOptions {
    /// A backlog of 128, on whatever device has the address, otherwise as the system does it.
    pub fn new() -> Self {
        Self {
            backlog: 128,
            device: None,
            port_space: None,
            options: IdOptions::default(),
            channel: None,
        }
    }

    /// How many requests may wait to be accepted; more are rejected or left without an answer by
    /// the kernel.
    pub fn backlog(mut self, backlog: u16) -> Self {
        self.backlog = backlog;
        self
    }

    /// On this device: where the address given is unspecified, on the first of the device's
    /// addresses that is of its family.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// In another port space than TCP for connections and UDP for datagrams.
    pub fn port_space(mut self, port_space: PortSpace) -> Self {
        self.port_space = Some(port_space);
        self
    }

    /// The type of service of what is accepted: see
    /// [`Resolver::type_of_service`](crate::Resolver::type_of_service).
    pub fn type_of_service(mut self, type_of_service: u8) -> Self {
        self.options.type_of_service = Some(type_of_service);
        self
    }

    /// Lets several identifiers have the same address and port as long as only one listens, as
    /// `SO_REUSEADDR` does.
    pub fn reuse_address(mut self, reuse: bool) -> Self {
        self.options.reuse_address = Some(reuse);
        self
    }

    /// Keeps a listener on `::` to IPv6, so that another can have the same port for IPv4.
    ///
    /// # References
    /// [`rdma_set_option(3)`](https://man7.org/linux/man-pages/man3/rdma_set_option.3.html)
    pub fn af_only(mut self, af_only: bool) -> Self {
        self.options.af_only = Some(af_only);
        self
    }

    /// How long the queue pairs of what is accepted wait for an acknowledgement: see
    /// [`Resolver::ack_timeout`](crate::Resolver::ack_timeout).
    pub fn ack_timeout(mut self, ack_timeout: u8) -> Self {
        self.options.ack_timeout = Some(ack_timeout);
        self
    }

    /// Has the requests arrive at a channel with the events of others: see [`EventChannel`]. What
    /// is accepted begins on a channel of its own.
    pub fn channel(mut self, channel: &EventChannel) -> Self {
        self.channel = Some(channel.clone());
        self
    }

    /// Listens for connections on an address: that of one device, or an unspecified one (`0.0.0.0`,
    /// `::`) for all. Port 0 lets the system choose.
    ///
    /// # Errors
    /// `EADDRINUSE` (the port is taken), `EADDRNOTAVAIL` (not an address of this host), `ENODEV`
    /// (no RDMA device has it); the text says what to do.
    ///
    /// # References
    /// [`rdma_bind_addr(3)`](https://man7.org/linux/man-pages/man3/rdma_bind_addr.3.html),
    /// [`rdma_listen(3)`](https://man7.org/linux/man-pages/man3/rdma_listen.3.html)
    pub fn bind(&self, address: SocketAddr) -> Result<Listener> {
        Ok(Listener::new(self.listen(address.into(), PortSpace::TCP)?))
    }

    /// Listens for connections on a GID and service number (`AF_IB`).
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    ///
    /// # References
    /// [`rdma_bind_addr(3)`](https://man7.org/linux/man-pages/man3/rdma_bind_addr.3.html)
    pub fn bind_ib(&self, address: IbAddr) -> Result<Listener> {
        Ok(Listener::new(self.listen(address.into(), PortSpace::TCP)?))
    }

    pub(crate) fn listen(&self, address: Address, usual: PortSpace) -> Result<ListeningId> {
        let port_space = self.port_space.unwrap_or(usual);
        if port_space.is_datagram() != usual.is_datagram() {
            let what = format!("{address}: port space {port_space} in the place of {usual}");
            return Err(Error::new(ErrorKind::InvalidInput, "rdma_create_id", what)
                .with_hint("TCP and IB are of connections, UDP and IPoIB of datagrams"));
        }
        let address = match (&self.device, address) {
            (None, address) => address,
            (Some(device), Address::Ip(ip)) => {
                let asked = (!ip.ip().is_unspecified()).then_some(address);
                match address::device::choose(device, address, asked)? {
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
        let mut id = Id::create(port_space)?;
        if let Some(channel) = &self.channel {
            // Now, for the kernel leaves requests behind whose listener moves.
            id.migrate(channel)?;
        }
        self.options.apply(&id, &address)?;
        id.bind(address)?;
        if let (true, Some(local)) = (port_space.is_datagram(), id.local_addr()) {
            // Without a device it is bound to all addresses, and requests are looked at one by one.
            if let Ok(path) = id.path_to("rdma_listen", local) {
                path.check_datagram("rdma_listen")?;
            }
        }
        id.listen(self.backlog.into(), &address)?;
        Ok(ListeningId::new(id, address))
    }
}

impl Listener {
    /// Listens on an address: that of one device, or an unspecified one (`0.0.0.0`, `::`) for all.
    /// Port 0 lets the system choose. [`ListenOptions`] say more.
    ///
    /// `backlog` is how many requests may wait to be accepted; more are rejected or left without an
    /// answer by the kernel.
    ///
    /// # Errors
    /// As [`ListenOptions::bind`].
    ///
    /// # Example
    /// ```no_run
    /// let listener = rdmacm::Listener::bind("10.99.0.1:0".parse()?, 16)?;
    /// println!("listening on {}", listener.local_addr()); // with the port that the system chose
    ///
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # References
    /// [`rdma_listen(3)`](https://man7.org/linux/man-pages/man3/rdma_listen.3.html)
    pub fn bind(address: SocketAddr, backlog: u16) -> Result<Self> {
        ListenOptions::new().backlog(backlog).bind(address)
    }
}
