//! A peer that wants to connect.

use ibverbs::{
    AccessFlags, Context, DuplexTransport, Error, QpState, QueuePair, Rc, Result, qp::QpChange,
};

use super::ready::PeerDepths;
use super::{EstablishPending, ReadyRequest, external_qp};
use crate::error::ConnectError;
use crate::event::Event;
use crate::id::path::path_accessors;
use crate::id::{Id, Path, qp_change, transition};
use crate::params::{ConnectParams, Ece, PrivateDataLimits, check_private_data};

/// A peer's request to connect. Dropping it rejects.
///
/// Answer within a few seconds: the peer's kernel gives up after its own time (10 s with
/// Soft-iWARP, a minute or so on RoCE).
///
/// # Example
/// ```no_run
/// use rdmacm::{ConnectRequest, Listener};
/// # fn serve(request: ConnectRequest) {}
/// # fn f(listener: &Listener) -> ibverbs::Result<()> {
/// while let Some(request) = listener.accept(None)? {
///     if request.private_data().starts_with(b"v1") {
///         serve(request);
///     } else {
///         request.reject(b"only version 1 is spoken here")?;
///     }
/// }
/// # Ok(()) }
/// ```
///
/// # References
/// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html),
/// [`rdma_reject(3)`](https://man7.org/linux/man-pages/man3/rdma_reject.3.html)
#[derive(Debug)]
#[must_use = "dropping a request rejects it"]
pub struct ConnectRequest {
    id: Id,
    path: Path,
    access: AccessFlags,
    offer: PeerDepths,
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
        let offer = PeerDepths {
            responder_resources: event.responder_resources(),
            initiator_depth: event.initiator_depth(),
        };
        Ok(Self {
            id,
            path,
            access: AccessFlags::empty(),
            offer,
            private_data: event.private_data().to_vec(),
        })
    }

    /// What the peer gave along. On InfiniBand and RoCE padded with zeros to 56 bytes.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// How much private data fits.
    pub fn private_data_limits(&self) -> PrivateDataLimits {
        self.path.private_data_limits()
    }

    /// What the peer's driver offers; all zeros when nothing.
    ///
    /// # Errors
    /// Fails when librdmacm is too old to know.
    ///
    /// # References
    /// [`rdma_get_remote_ece(3)`](https://man7.org/linux/man-pages/man3/rdma_get_remote_ece.3.html)
    pub fn remote_ece(&self) -> Result<Ece> {
        self.id.remote_ece(&self.path)
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
    /// - [`ErrorKind::Mismatch`](ibverbs::ErrorKind::Mismatch) when it is of another device; the
    ///   text names both. The request is rejected then, as on every other error;
    /// - [`ErrorKind::Disconnected`](ibverbs::ErrorKind::Disconnected) when the peer has gone
    ///   meanwhile.
    ///
    /// # References
    /// [`rdma_init_qp_attr(3)`](https://man7.org/linux/man-pages/man3/rdma_init_qp_attr.3.html)
    pub fn with_qp(self, mut qp: QueuePair<Rc>) -> Result<ReadyRequest> {
        let Self {
            id,
            path,
            access,
            offer,
            private_data,
        } = self;
        path.check("rdma_accept", &qp)?;
        transition::to_init(&mut qp, &id, access, &path)
            .map_err(|error| why_gone(&id, &path, error))?;
        Ok(ReadyRequest::new(qp, id, path, offer, private_data))
    }

    /// What a queue pair needs to enter INIT, then RTR, then RTS for this request, for applications
    /// that move it themselves.
    ///
    /// # Errors
    /// Fails when the peer has gone meanwhile.
    ///
    /// # References
    /// [`rdma_init_qp_attr(3)`](https://man7.org/linux/man-pages/man3/rdma_init_qp_attr.3.html)
    pub fn qp_change(&self, state: QpState) -> Result<QpChange> {
        qp_change::for_state(state, &self.id, &self.path)
    }

    /// Accepts for a queue pair, of any transport, that stays with the application, which has moved
    /// it to RTS; and does not wait until the connection stands. InfiniBand and RoCE only.
    /// [`with_qp`](Self::with_qp) does all this for RC.
    ///
    /// # Errors
    /// As [`ReadyRequest::start`]; [`ErrorKind::Unsupported`](ibverbs::ErrorKind::Unsupported) on
    /// iWARP, whose kernel moves the queue pair.
    ///
    /// # References
    /// [`rdma_accept(3)`](https://man7.org/linux/man-pages/man3/rdma_accept.3.html)
    pub fn accept_external<T: DuplexTransport>(
        self,
        qp: &QueuePair<T>,
        params: &ConnectParams<'_>,
    ) -> std::result::Result<EstablishPending, ConnectError> {
        external_qp::accept(self.id, self.path, qp, params, self.private_data)
    }

    /// Rejects, giving the peer a reason of at most [`PrivateDataLimits::reject`] bytes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ibverbs::ErrorKind::InvalidInput) when the reason is too long:
    /// the peer is rejected without. Fails too when the peer is gone already.
    ///
    /// # References
    /// [`rdma_reject(3)`](https://man7.org/linux/man-pages/man3/rdma_reject.3.html)
    pub fn reject(mut self, reason: &[u8]) -> Result<()> {
        check_private_data("rdma_reject", reason, self.private_data_limits().reject)?;
        self.id.reject(reason, &self.path)
    }

    /// Rejects because the peer's [`Ece`] options are not acceptable; otherwise as
    /// [`reject`](Self::reject).
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`rdma_reject_ece(3)`](https://man7.org/linux/man-pages/man3/rdma_reject.3.html)
    pub fn reject_ece(mut self, reason: &[u8]) -> Result<()> {
        check_private_data("rdma_reject_ece", reason, self.private_data_limits().reject)?;
        self.id.reject_ece(reason, &self.path)
    }
}

/// A peer that has gone shows in an event, and in an error that does not say so.
fn why_gone(id: &Id, path: &Path, error: Error) -> Error {
    match id.try_event() {
        Ok(Some(event)) => ConnectError::from_event("rdma_accept", path, &event).into(),
        _ => error,
    }
}
