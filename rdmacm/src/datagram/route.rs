//! A resolved route to a service of datagrams.

use std::time::Duration;

use ibverbs::{Context, QueuePair, Result, Ud};

use super::querying::VERB;
use super::{Querying, Service};
use crate::active::{Resolved, Resolver, Resolving};
use crate::address::PortSpace;
use crate::datagram;
use crate::error::ConnectError;
use crate::id::path::path_accessors;
use crate::id::{Id, Path, QpIdentity};
use crate::params::{ConnectParams, PrivateDataLimits, check_private_data};
use crate::progress::InProgress;

impl Resolver {
    /// Resolves to a service of datagrams. Nothing is sent to the peer's program yet.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    ///
    /// # References
    /// [`rdma_resolve_addr(3)`](https://man7.org/linux/man-pages/man3/rdma_resolve_addr.3.html)
    pub fn resolve_datagram(self) -> Result<DatagramRoute> {
        let limit = Resolving::<DatagramRoute>::limit(self.step_timeout());
        self.start_datagram()?.wait(Some(limit))
    }

    /// Begins to resolve to a service of datagrams, and does not wait.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve), as far as they are known at once.
    ///
    /// # References
    /// [`rdma_resolve_addr(3)`](https://man7.org/linux/man-pages/man3/rdma_resolve_addr.3.html)
    pub fn start_datagram(self) -> Result<Resolving<DatagramRoute>> {
        self.begin()
    }
}

/// A route to a service of datagrams: the device is chosen, the service is to be asked.
///
/// One queue pair can speak with any number of services; it is started once, on one route.
///
/// # Example
/// ```no_run
/// use ibverbs::{CqOptions, QpOptions, Ud, wr};
/// use std::time::Duration;
///
/// let route = rdmacm::Resolver::new("10.99.0.1:7174".parse()?).resolve_datagram()?;
/// let pd = route.context()?.alloc_pd()?;
/// let mut cq = pd.context().create_cq(CqOptions::default())?;
/// let mut qp = pd.create_qp::<Ud>(&cq, &cq, QpOptions::default())?;
/// route.start_qp(&mut qp)?;
/// let service = route.query(b"", Duration::from_secs(5))?;
/// let to = service.address.destination(&mut qp)?;
/// qp.post_send(wr::send_to(pd.buf(64)?, to))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # References
/// [`rdma_resolve_addr(3)`](https://man7.org/linux/man-pages/man3/rdma_resolve_addr.3.html)
#[derive(Debug)]
#[must_use = "a route leads nowhere until `query`"]
pub struct DatagramRoute {
    id: Id,
    path: Path,
}

impl Resolved for DatagramRoute {
    const PORT_SPACE: PortSpace = PortSpace::UDP;

    fn new(id: Id, path: Path) -> Result<Self> {
        path.check_datagram("rdma_resolve_route")?;
        Ok(Self { id, path })
    }
}

path_accessors!(
    DatagramRoute,
    "The device that leads to the peer.",
    "The local address, with the port that the connection manager chose."
);

impl DatagramRoute {
    /// How much private data fits.
    pub fn private_data_limits(&self) -> PrivateDataLimits {
        PrivateDataLimits::DATAGRAM
    }

    /// Opens the device, to make the queue pair on.
    ///
    /// # Errors
    /// As [`Device::open`](ibverbs::Device::open).
    ///
    /// # References
    /// [`ibv_open_device(3)`](https://man7.org/linux/man-pages/man3/ibv_open_device.3.html)
    pub fn context(&self) -> Result<Context> {
        self.path.open()
    }

    /// Moves a fresh queue pair of [this device](Self::device_name) from RESET to RTS, with the
    /// partition and the queue key of the port space: it can receive and send from now on.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](ibverbs::ErrorKind::Mismatch) when it is of another device; the text
    /// names both.
    ///
    /// # References
    /// [`rdma_init_qp_attr(3)`](https://man7.org/linux/man-pages/man3/rdma_init_qp_attr.3.html)
    pub fn start_qp(&self, qp: &mut QueuePair<Ud>) -> Result<()> {
        datagram::start(&self.id, &self.path, qp, None)
    }

    /// Asks the service, giving it `private_data`, and waits for the answer at most for `timeout`.
    ///
    /// # Errors
    /// - [`ErrorKind::Disconnected`](ibverbs::ErrorKind::Disconnected) and a
    ///   [`Rejection`](crate::Rejection): the service refused, or nobody listens;
    /// - [`ErrorKind::TimedOut`](ibverbs::ErrorKind::TimedOut): no answer in time;
    /// - [`ErrorKind::InvalidInput`](ibverbs::ErrorKind::InvalidInput): private data that does not
    ///   fit.
    ///
    /// # References
    /// [`rdma_connect(3)`](https://man7.org/linux/man-pages/man3/rdma_connect.3.html), IBA 12.11 (service ID resolution)
    pub fn query(
        self,
        private_data: &[u8],
        timeout: Duration,
    ) -> std::result::Result<Service, ConnectError> {
        self.start_query(private_data)?.wait(Some(timeout))
    }

    /// Asks the service, and does not wait for the answer.
    ///
    /// # Errors
    /// As [`query`](Self::query), as far as they are known at once.
    ///
    /// # References
    /// [`rdma_connect(3)`](https://man7.org/linux/man-pages/man3/rdma_connect.3.html)
    pub fn start_query(self, private_data: &[u8]) -> Result<Querying> {
        let Self { id, path } = self;
        check_private_data(VERB, private_data, PrivateDataLimits::DATAGRAM.request)?;
        let params = ConnectParams {
            private_data,
            ..ConnectParams::default()
        };
        id.connect(
            &params,
            QpIdentity {
                qp_num: 0,
                has_srq: false,
            },
            &path,
        )?;
        Ok(Querying::new(id, path))
    }
}
