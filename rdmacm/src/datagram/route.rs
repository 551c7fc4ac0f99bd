//! Resolved routes to datagram services.

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
    /// Resolves the route to a datagram service. Nothing is sent to the peer's application yet.
    ///
    /// # Errors
    /// Same as [`resolve`](Self::resolve).
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_datagram(self) -> Result<DatagramRoute> {
        let limit = Resolving::<DatagramRoute>::limit(self.step_timeout());
        self.start_datagram()?.wait(Some(limit))
    }

    /// Starts to resolve the route to a datagram service without waiting for the result.
    ///
    /// # Errors
    /// Same as [`resolve`](Self::resolve), if the failure is immediate.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn start_datagram(self) -> Result<Resolving<DatagramRoute>> {
        self.begin()
    }
}

/// A resolved route to a datagram service that has not been queried yet.
///
/// One queue pair can communicate with any number of services. Start it once, on one of the routes.
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
/// let destination = service.address.destination(&mut qp)?;
/// qp.post_send(wr::send(pd.buf(64)?).to(destination))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "rdma_resolve_addr")]
#[derive(Debug)]
#[must_use = "a route does nothing until `query`"]
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
    /// Returns the maximum length of private data.
    pub fn private_data_limits(&self) -> PrivateDataLimits {
        PrivateDataLimits::DATAGRAM
    }

    /// Opens the device, to create the queue pair on it.
    ///
    /// # Errors
    /// Same as [`Device::open`](ibverbs::Device::open).
    #[doc(alias = "ibv_open_device")]
    pub fn context(&self) -> Result<Context> {
        self.path.open()
    }

    /// Moves a new queue pair of [this device](Self::device_name) from RESET to RTS with the
    /// partition and the Q_Key of the port space. It can then receive and send.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](ibverbs::ErrorKind::Mismatch) if the queue pair belongs to another
    /// device. The message names both devices.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn start_qp(&self, qp: &mut QueuePair<Ud>) -> Result<()> {
        datagram::start_qp(&self.id, &self.path, qp, None)
    }

    /// Queries the service with `private_data` and waits for the answer, at most for `timeout`.
    ///
    /// # Errors
    /// - [`ErrorKind::Disconnected`](ibverbs::ErrorKind::Disconnected) with a
    ///   [`Rejection`](crate::Rejection): the service rejected the request, or nothing listens on
    ///   the port.
    /// - [`ErrorKind::TimedOut`](ibverbs::ErrorKind::TimedOut): the service did not answer in time.
    /// - [`ErrorKind::InvalidInput`](ibverbs::ErrorKind::InvalidInput): the private data is too
    ///   long.
    ///
    /// # References
    /// [`rdma_connect(3)`](https://man7.org/linux/man-pages/man3/rdma_connect.3.html), IBA 12.11 (service ID resolution)
    #[doc(alias = "rdma_connect")]
    pub fn query(self, private_data: &[u8], timeout: Duration) -> Result<Service, ConnectError> {
        self.start_query(private_data)?.wait(Some(timeout))
    }

    /// Queries the service without waiting for the answer.
    ///
    /// # Errors
    /// Same as [`query`](Self::query), if the failure is immediate.
    #[doc(alias = "rdma_connect")]
    pub fn start_query(self, private_data: &[u8]) -> Result<Querying> {
        let Self { id, path } = self;
        check_private_data(VERB, private_data, PrivateDataLimits::DATAGRAM.request)?;
        let params = ConnectParams::new().private_data(private_data);
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
