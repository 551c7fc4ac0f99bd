//! Connect requests.

use ibverbs::{
    AccessFlags, Context, DuplexTransport, QpState, QueuePair, Rc, Result, qp::QpChange,
};

use super::ready::PeerDepths;
use super::{EstablishPending, ReadyRequest, external_qp};
use crate::error::ConnectError;
use crate::event::Event;
use crate::id::path::path_accessors;
use crate::id::{Id, Path, qp_change, transition};
use crate::params::{ConnectParams, Ece, PrivateDataLimits, check_private_data};

/// A peer's request to connect. Dropping it rejects the request.
///
/// Answer within a few seconds. The peer's kernel gives up after its own timeout, 10 s with
/// Soft-iWARP and about one minute on RoCE. Registering large memory can take longer: register it
/// before listening, in a protection domain of the device that all connections use.
///
/// # Example
/// ```no_run
/// use rdmacm::{ConnectRequest, Listener};
/// # fn serve(request: ConnectRequest) {}
/// # fn f(listener: &Listener) -> ibverbs::Result<()> {
/// while let Some(request) = listener.next_request(None)? {
///     if request.private_data().starts_with(b"v1") {
///         serve(request);
///     } else {
///         request.reject(b"only version 1 is supported")?;
///     }
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "rdma_get_cm_event")]
#[doc(alias = "rdma_reject")]
#[derive(Debug)]
#[must_use = "dropping a request rejects it"]
pub struct ConnectRequest {
    id: Id,
    path: Path,
    access: AccessFlags,
    peer_depths: PeerDepths,
    private_data: Vec<u8>,
}

path_accessors!(
    ConnectRequest,
    "The device that the request came in by.",
    "The local address that the peer asked for."
);

impl ConnectRequest {
    pub(crate) fn new(id: Id, event: &Event) -> Result<Self> {
        let path = id.path("rdma_get_cm_event")?;
        let peer_depths = PeerDepths {
            responder_resources: event.responder_resources(),
            initiator_depth: event.initiator_depth(),
        };
        Ok(Self {
            id,
            path,
            access: AccessFlags::empty(),
            peer_depths,
            private_data: event.private_data().to_vec(),
        })
    }

    /// Returns the private data sent by the peer. On InfiniBand and RoCE it is padded with zeros to
    /// 56 bytes.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Returns the maximum length of private data.
    pub fn private_data_limits(&self) -> PrivateDataLimits {
        self.path.private_data_limits()
    }

    /// Returns the options that the peer's driver sent; all zeros if there are none.
    ///
    /// # Errors
    /// Fails if librdmacm does not support it.
    #[doc(alias = "rdma_get_remote_ece")]
    pub fn remote_ece(&self) -> Result<Ece> {
        self.id.remote_ece(&self.path)
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
    /// - [`ErrorKind::Mismatch`](ibverbs::ErrorKind::Mismatch) if the queue pair belongs to another
    ///   device. The message names both devices. As with every other error, the request is then
    ///   rejected.
    /// - [`ErrorKind::InvalidInput`](ibverbs::ErrorKind::InvalidInput) (`EINVAL`) if the peer has
    ///   disconnected. The kernel reports no events of requests that are not accepted.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn with_qp(self, mut qp: QueuePair<Rc>) -> Result<ReadyRequest> {
        let Self {
            id,
            path,
            access,
            peer_depths,
            private_data,
        } = self;
        path.check("rdma_accept", &qp)?;
        transition::to_init(&mut qp, &id, access, &path)?;
        Ok(ReadyRequest::new(qp, id, path, peer_depths, private_data))
    }

    /// Returns the change that a queue pair needs to enter INIT, RTR and then RTS for this request,
    /// for applications that change its state themselves.
    ///
    /// # Errors
    /// Fails if the peer has disconnected.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn qp_change(&self, state: QpState) -> Result<QpChange> {
        qp_change::for_state(state, &self.id, &self.path)
    }

    /// Accepts the request for a queue pair of any transport that the application keeps and has
    /// moved to RTS. Does not wait until the connection is established. InfiniBand and RoCE only.
    /// For RC, [`with_qp`](Self::with_qp) does all of this.
    ///
    /// # Errors
    /// Same as [`ReadyRequest::start`]; also
    /// [`ErrorKind::Unsupported`](ibverbs::ErrorKind::Unsupported) on iWARP, where the kernel
    /// changes the state of the queue pair.
    #[doc(alias = "rdma_accept")]
    pub fn accept_external<T: DuplexTransport>(
        self,
        qp: &QueuePair<T>,
        params: &ConnectParams<'_>,
    ) -> Result<EstablishPending, ConnectError> {
        external_qp::accept(self.id, self.path, qp, params, self.private_data)
    }

    /// Rejects the request, with a reason of at most [`PrivateDataLimits::reject`] bytes as private
    /// data.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ibverbs::ErrorKind::InvalidInput) if the reason is too long; the
    /// request is then rejected without one. Also fails if the peer has already disconnected.
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, reason: &[u8]) -> Result<()> {
        check_private_data("rdma_reject", reason, self.private_data_limits().reject)?;
        self.id.reject(reason, &self.path)
    }

    /// Rejects the request because the peer's [`Ece`] options are not acceptable. Otherwise the
    /// same as [`reject`](Self::reject).
    ///
    /// # Errors
    /// Same as [`reject`](Self::reject).
    #[doc(alias = "rdma_reject_ece")]
    pub fn reject_ece(self, reason: &[u8]) -> Result<()> {
        check_private_data("rdma_reject_ece", reason, self.private_data_limits().reject)?;
        self.id.reject_ece(reason, &self.path)
    }
}
