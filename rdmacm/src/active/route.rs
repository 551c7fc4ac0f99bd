//! A resolved route to a peer.

use ibverbs::{
    AccessFlags, Context, DuplexTransport, QpState, QueuePair, Rc, Result, qp::QpChange,
};

use super::{ConnectPending, external_qp};
use crate::active::{ReadyRoute, Resolved};
use crate::address::PortSpace;
use crate::error::ConnectError;
use crate::id::path::path_accessors;
use crate::id::{Id, Path, qp_change, transition};
use crate::params::{ConnectParams, PrivateDataLimits};

/// A route to a peer: the device is chosen, the queue pair is still missing. Dropping it leaves
/// nothing behind.
///
/// # Example
/// ```no_run
/// use ibverbs::{AccessFlags, CqOptions, QpOptions, Rc};
/// let route = rdmacm::Resolver::new("10.99.0.1:7471".parse()?)
///     .resolve()?
///     .access(AccessFlags::REMOTE_READ);
/// let context = route.context()?;
/// let (pd, cq) = (
///     context.alloc_pd()?,
///     context.create_cq(CqOptions::default())?,
/// );
/// let ready = route.with_qp(pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # References
/// [`rdma_resolve_route(3)`](https://man7.org/linux/man-pages/man3/rdma_resolve_route.3.html)
#[derive(Debug)]
#[must_use = "a route leads nowhere until `with_qp` and `connect`"]
pub struct Route {
    id: Id,
    path: Path,
    access: AccessFlags,
}

impl Resolved for Route {
    const PORT_SPACE: PortSpace = PortSpace::TCP;

    fn new(id: Id, path: Path) -> Result<Self> {
        Ok(Self {
            id,
            path,
            access: AccessFlags::empty(),
        })
    }
}

path_accessors!(
    Route,
    "The device that leads to the peer.",
    "The local address, with the port that the connection manager chose."
);

impl Route {
    /// How much private data fits.
    pub fn private_data_limits(&self) -> PrivateDataLimits {
        self.path.private_data_limits()
    }

    /// Opens the device, to make the queue pair on. With several connections over one device, open
    /// it once and share that.
    ///
    /// # Errors
    /// As [`Device::open`](ibverbs::Device::open).
    ///
    /// # References
    /// [`ibv_open_device(3)`](https://man7.org/linux/man-pages/man3/ibv_open_device.3.html)
    pub fn context(&self) -> Result<Context> {
        self.path.open()
    }

    /// What the peer may do to memory that is registered for it; nothing if not given. Messages
    /// need none.
    pub fn access(mut self, access: AccessFlags) -> Self {
        self.access = access;
        self
    }

    /// Takes a fresh queue pair, made on any opening of [this device](Self::device_name), and moves
    /// it from RESET to INIT.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](ibverbs::ErrorKind::Mismatch) when it is of another device; the text
    /// names both.
    ///
    /// # References
    /// [`rdma_init_qp_attr(3)`](https://man7.org/linux/man-pages/man3/rdma_init_qp_attr.3.html)
    pub fn with_qp(self, mut qp: QueuePair<Rc>) -> Result<ReadyRoute> {
        let Self { id, path, access } = self;
        path.check("rdma_connect", &qp)?;
        transition::to_init(&mut qp, &id, access, &path)?;
        Ok(ReadyRoute::new(qp, id, path))
    }

    /// What a queue pair needs to enter INIT on this route, for applications that move it
    /// themselves. Then [access](Self::access) is for them to give.
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # References
    /// [`rdma_init_qp_attr(3)`](https://man7.org/linux/man-pages/man3/rdma_init_qp_attr.3.html)
    pub fn qp_change(&self, state: QpState) -> Result<QpChange> {
        qp_change::for_state(state, &self.id, &self.path)
    }

    /// Sends the request for a queue pair, of any transport, that stays with the application, which
    /// moves it itself; and does not wait. InfiniBand and RoCE only. [`with_qp`](Self::with_qp)
    /// does all this for RC.
    ///
    /// # Errors
    /// As [`ReadyRoute::start`]; [`ErrorKind::Unsupported`](ibverbs::ErrorKind::Unsupported) on
    /// iWARP, whose kernel moves the queue pair.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QpState, QueuePair, Uc};
    /// use rdmacm::connection::ConnectedId;
    /// use rdmacm::{ConnectParams, InProgress, Route};
    /// use std::time::Duration;
    ///
    /// fn connect(route: Route, qp: &mut QueuePair<Uc>) -> Result<ConnectedId, ibverbs::Error> {
    ///     qp.modify(&route.qp_change(QpState::INIT)?)?;
    ///     // … post receives …
    ///     let answer = route
    ///         .request(qp, &ConnectParams::default())?
    ///         .wait(Some(Duration::from_secs(5)))?;
    ///     // What RC needs, UC is not given.
    ///     let to_receive = answer.qp_change(QpState::RTR)?;
    ///     qp.modify(&ibverbs::qp::QpChange {
    ///         max_dest_rd_atomic: None,
    ///         min_rnr_timer: None,
    ///         ..to_receive
    ///     })?;
    ///     let sq_psn = answer.qp_change(QpState::RTS)?.sq_psn;
    ///     qp.modify(&ibverbs::qp::QpChange {
    ///         sq_psn,
    ///         ..ibverbs::qp::QpChange::to(QpState::RTS)
    ///     })?;
    ///     answer.establish()
    /// }
    /// ```
    ///
    /// # References
    /// [`rdma_connect(3)`](https://man7.org/linux/man-pages/man3/rdma_connect.3.html),
    /// [`rdma_establish(3)`](https://man7.org/linux/man-pages/man3/rdma_establish.3.html)
    pub fn request<T: DuplexTransport>(
        self,
        qp: &QueuePair<T>,
        params: &ConnectParams<'_>,
    ) -> std::result::Result<ConnectPending, ConnectError> {
        external_qp::request(self.id, self.path, qp, params)
    }
}
