//! Resolved routes.

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

/// A resolved route to a peer, without a queue pair. Dropping it has no effect on the peer.
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
#[doc(alias = "rdma_resolve_route")]
#[derive(Debug)]
#[must_use = "a route does nothing until `with_qp` and `connect`"]
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
    /// Returns the maximum length of private data.
    pub fn private_data_limits(&self) -> PrivateDataLimits {
        self.path.private_data_limits()
    }

    /// Opens the device, to create the queue pair on it. For several connections over one device,
    /// open it once and share the context.
    ///
    /// # Errors
    /// Same as [`Device::open`](ibverbs::Device::open).
    #[doc(alias = "ibv_open_device")]
    pub fn context(&self) -> Result<Context> {
        self.path.open()
    }

    /// Sets the operations that the peer may perform on registered memory. The default is none,
    /// which is enough for messages.
    pub fn access(mut self, access: AccessFlags) -> Self {
        self.access = access;
        self
    }

    /// Adds a new queue pair, created on any context of [this device](Self::device_name), and moves
    /// it from RESET to INIT.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](ibverbs::ErrorKind::Mismatch) if the queue pair belongs to another
    /// device. The message names both devices.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn with_qp(self, mut qp: QueuePair<Rc>) -> Result<ReadyRoute> {
        let Self { id, path, access } = self;
        path.check("rdma_connect", &qp)?;
        transition::to_init(&mut qp, &id, access, &path)?;
        Ok(ReadyRoute::new(qp, id, path))
    }

    /// Returns the change that a queue pair needs to enter INIT on this route, for applications
    /// that change its state themselves. [`access`](Self::access) does not apply then.
    ///
    /// # Errors
    /// Fails if the device was removed.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn qp_change(&self, state: QpState) -> Result<QpChange> {
        qp_change::for_state(state, &self.id, &self.path)
    }

    /// Sends a connect request for a queue pair of any transport that the application keeps and
    /// moves through its states. Does not wait for the response. InfiniBand and RoCE only. For RC,
    /// [`with_qp`](Self::with_qp) does all of this.
    ///
    /// # Errors
    /// Same as [`ReadyRoute::start`]; also
    /// [`ErrorKind::Unsupported`](ibverbs::ErrorKind::Unsupported) on iWARP, where the kernel
    /// changes the state of the queue pair.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QpState, QueuePair, Uc, qp::QpChange};
    /// use rdmacm::connection::ConnectedId;
    /// use rdmacm::{ConnectParams, InProgress, Route};
    /// use std::time::Duration;
    ///
    /// fn connect(route: Route, qp: &mut QueuePair<Uc>) -> Result<ConnectedId, ibverbs::Error> {
    ///     qp.modify(&route.qp_change(QpState::INIT)?)?;
    ///     // Post receives here.
    ///     let response = route
    ///         .request(qp, &ConnectParams::default())?
    ///         .wait(Some(Duration::from_secs(5)))?;
    ///     // UC does not have these two attributes of RC.
    ///     let mut to_rtr = response.qp_change(QpState::RTR)?;
    ///     to_rtr.max_dest_rd_atomic = None;
    ///     to_rtr.min_rnr_timer = None;
    ///     qp.modify(&to_rtr)?;
    ///     let mut to_rts = QpChange::to(QpState::RTS);
    ///     to_rts.sq_psn = response.qp_change(QpState::RTS)?.sq_psn;
    ///     qp.modify(&to_rts)?;
    ///     response.establish()
    /// }
    /// ```
    #[doc(alias = "rdma_connect")]
    #[doc(alias = "rdma_establish")]
    pub fn request<T: DuplexTransport>(
        self,
        qp: &QueuePair<T>,
        params: &ConnectParams<'_>,
    ) -> Result<ConnectPending, ConnectError> {
        external_qp::request(self.id, self.path, qp, params)
    }
}
