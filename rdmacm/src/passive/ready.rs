//! Connect requests with a queue pair.

use std::time::Duration;

use ibverbs::{QueueId, QueuePair, Rc};

use super::accepting::Cleanup;
use super::{Accepting, VERB};
use crate::connection::Connection;
use crate::error::ConnectError;
use crate::id::{Id, Path, QpIdentity, transition};
use crate::params::{ConnectParams, check_private_data};
use crate::progress::InProgress;

/// Depths requested by the peer, which this side must not exceed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerDepths {
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
}

/// A connect request with a queue pair in INIT. Post the first receives, then accept. Dropping it
/// rejects the request.
///
/// # Example
/// ```no_run
/// use std::time::Duration;
/// use ibverbs::{QueuePair, Rc, wr};
/// use rdmacm::{ConnectParams, ConnectRequest, Connection, ReadyRequest};
/// # fn f(request: ConnectRequest, qp: QueuePair<Rc>) -> Result<Connection, ibverbs::Error> {
/// let mut ready: ReadyRequest = request.with_qp(qp)?;
/// let buf = ready.qp_mut().pd().buf(4096)?;
/// ready.qp_mut().post_recv(wr::recv(buf))?; // posted before the first message
/// Ok(ready.accept(&ConnectParams::default(), Duration::from_secs(5))?)
/// # }
/// ```
#[doc(alias = "rdma_accept")]
#[derive(Debug)]
#[must_use = "dropping it rejects the request"]
pub struct ReadyRequest {
    // Drop order: the queue pair before its identifier.
    qp: QueuePair<Rc>,
    id: Id,
    path: Path,
    queue: QueueId,
    peer_depths: PeerDepths,
    private_data: Vec<u8>,
    cleanup: Option<Cleanup>,
}

impl ReadyRequest {
    pub(crate) fn new(
        qp: QueuePair<Rc>,
        id: Id,
        path: Path,
        peer_depths: PeerDepths,
        private_data: Vec<u8>,
    ) -> Self {
        let queue = qp.id();
        Self {
            qp,
            id,
            path,
            queue,
            peer_depths,
            private_data,
            cleanup: None,
        }
    }

    /// Sets a function that is called before the queue pair is destroyed if the request was
    /// accepted, but the connection was not established. A later call replaces the function.
    ///
    /// The peer may already have sent messages to the queue pair. If it shares its completion queue
    /// or its receives with other queue pairs, the function can retire their completions.
    pub fn set_cleanup(
        &mut self,
        cleanup: impl FnOnce(&mut QueuePair<Rc>) + Send + Sync + 'static,
    ) {
        self.cleanup = Some(Cleanup(Box::new(cleanup)));
    }

    /// Returns the queue pair. Receives posted now are in place before the peer's first message can
    /// arrive.
    pub fn qp_mut(&mut self) -> &mut QueuePair<Rc> {
        &mut self.qp
    }

    /// Returns the private data sent by the peer.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Accepts the request and waits until the connection is established, at most for `timeout`.
    ///
    /// On iWARP the active side must send first. The connection fails if this side sends before the
    /// first message of the peer has arrived.
    ///
    /// # Errors
    /// - [`ErrorKind::TimedOut`](ibverbs::ErrorKind::TimedOut): the peer did not complete the
    ///   handshake in time.
    /// - [`ErrorKind::Disconnected`](ibverbs::ErrorKind::Disconnected): the peer disconnected, or
    ///   rejected the acceptance.
    /// - [`ErrorKind::InvalidInput`](ibverbs::ErrorKind::InvalidInput): the private data is too
    ///   long, or a parameter is out of range.
    #[doc(alias = "rdma_accept")]
    pub fn accept(
        self,
        params: &ConnectParams<'_>,
        timeout: Duration,
    ) -> Result<Connection, ConnectError> {
        self.start(params)?.wait(Some(timeout))
    }

    /// Accepts the request without waiting until the connection is established.
    ///
    /// # Errors
    /// Same as [`accept`](Self::accept), if the failure is immediate.
    #[doc(alias = "rdma_accept")]
    pub fn start(self, params: &ConnectParams<'_>) -> Result<Accepting, ConnectError> {
        // Drop order: the queue pair, the last of these variables, before its identifier.
        let Self {
            id,
            path,
            queue,
            peer_depths,
            private_data,
            cleanup,
            mut qp,
        } = self;
        params.check(VERB, path.private_data_limits().reply)?;
        path.check_same(VERB, &qp, queue)?;
        let mut params = params.limited_to(qp.pd().context())?;
        params.responder_resources = params
            .responder_resources
            .min(peer_depths.responder_resources);
        params.initiator_depth = params.initiator_depth.min(peer_depths.initiator_depth);
        if !path.is_iwarp() {
            transition::to_rts(&mut qp, &id, &params, &path)?;
        }
        id.accept(&params, QpIdentity::new(&qp)?, &path)?;
        Ok(Accepting::new(qp, id, path, private_data, cleanup))
    }

    /// Rejects the request: see [`ConnectRequest::reject`](crate::ConnectRequest::reject). The
    /// buffers posted to the queue pair return to their pools.
    ///
    /// # Errors
    /// Same as [`ConnectRequest::reject`](crate::ConnectRequest::reject).
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, reason: &[u8]) -> ibverbs::Result<()> {
        let Self { qp, id, path, .. } = self;
        drop(qp);
        check_private_data("rdma_reject", reason, path.private_data_limits().reject)?;
        id.reject(reason, &path)
    }
}
