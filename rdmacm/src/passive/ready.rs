//! A request with a queue pair, ready to be accepted.

use std::time::Duration;

use ibverbs::{Qpn, QueuePair, Rc};

use super::{Accepting, VERB};
use crate::connection::Connection;
use crate::error::ConnectError;
use crate::id::{Id, Path, QpIdentity, transition};
use crate::params::{ConnectParams, check_private_data};
use crate::progress::InProgress;

/// What the peer offers, to be met and not exceeded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerDepths {
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
}

/// A request with a queue pair in INIT: post the first receives, then accept. Dropping it rejects.
///
/// # Example
/// ```no_run
/// use std::time::Duration;
/// use ibverbs::{QueuePair, Rc, wr};
/// use rdmacm::{ConnectParams, ConnectRequest, Connection, ReadyRequest};
/// # fn f(request: ConnectRequest, qp: QueuePair<Rc>) -> Result<Connection, ibverbs::Error> {
/// let mut pending: ReadyRequest = request.with_qp(qp)?;
/// let buf = pending.qp_mut().pd().buf(4096)?;
/// pending.qp_mut().post_recv(wr::recv(buf))?; // there before the first message
/// Ok(pending.accept(&ConnectParams::default(), Duration::from_secs(5))?)
/// # }
/// ```
///
/// # References
/// [`rdma_accept(3)`](https://man7.org/linux/man-pages/man3/rdma_accept.3.html)
#[derive(Debug)]
#[must_use = "dropping it rejects the request"]
pub struct ReadyRequest {
    // Dropped in this order: the queue pair before its identifier.
    qp: QueuePair<Rc>,
    id: Id,
    path: Path,
    qp_num: Qpn,
    offer: PeerDepths,
    private_data: Vec<u8>,
}

impl ReadyRequest {
    pub(crate) fn new(
        qp: QueuePair<Rc>,
        id: Id,
        path: Path,
        offer: PeerDepths,
        private_data: Vec<u8>,
    ) -> Self {
        let qp_num = qp.qp_num();
        Self {
            qp,
            id,
            path,
            qp_num,
            offer,
            private_data,
        }
    }

    /// The queue pair: receives posted now are there before the peer's first message can be.
    pub fn qp_mut(&mut self) -> &mut QueuePair<Rc> {
        &mut self.qp
    }

    /// What the peer gave along.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Accepts, and waits until the connection stands, at most for `timeout`.
    ///
    /// On iWARP the side that connected sends first: until its first message has arrived, this side
    /// must not send, or the connection fails.
    ///
    /// # Errors
    /// - [`ErrorKind::TimedOut`](ibverbs::ErrorKind::TimedOut): the peer did not finish the
    ///   handshake;
    /// - [`ErrorKind::Disconnected`](ibverbs::ErrorKind::Disconnected): it went away, or rejected
    ///   in turn;
    /// - [`ErrorKind::InvalidInput`](ibverbs::ErrorKind::InvalidInput): private data that does not
    ///   fit, a count out of range.
    ///
    /// # References
    /// [`rdma_accept(3)`](https://man7.org/linux/man-pages/man3/rdma_accept.3.html)
    pub fn accept(
        self,
        params: &ConnectParams<'_>,
        timeout: Duration,
    ) -> std::result::Result<Connection, ConnectError> {
        self.start(params)?.wait(Some(timeout))
    }

    /// Accepts, and does not wait until the connection stands.
    ///
    /// # Errors
    /// As [`accept`](Self::accept), as far as they are known at once.
    ///
    /// # References
    /// [`rdma_accept(3)`](https://man7.org/linux/man-pages/man3/rdma_accept.3.html)
    pub fn start(self, params: &ConnectParams<'_>) -> std::result::Result<Accepting, ConnectError> {
        let Self {
            mut qp,
            mut id,
            path,
            qp_num,
            offer,
            private_data,
        } = self;
        params.check(VERB, path.private_data_limits().reply)?;
        path.check_same(VERB, &qp, qp_num)?;
        let mut params = params.limited_to(qp.pd().context())?;
        params.responder_resources = params.responder_resources.min(offer.responder_resources);
        params.initiator_depth = params.initiator_depth.min(offer.initiator_depth);
        if !path.is_iwarp() {
            transition::to_rts(&mut qp, &id, &params, &path)?;
        }
        id.accept(&params, QpIdentity::new(&qp), &path)?;
        Ok(Accepting::new(qp, id, path, private_data))
    }

    /// Rejects after all: see [`ConnectRequest::reject`](crate::ConnectRequest::reject). The
    /// buffers posted to the queue pair go back to their pools.
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`rdma_reject(3)`](https://man7.org/linux/man-pages/man3/rdma_reject.3.html)
    pub fn reject(self, reason: &[u8]) -> ibverbs::Result<()> {
        let Self {
            qp, mut id, path, ..
        } = self;
        drop(qp);
        check_private_data("rdma_reject", reason, path.private_data_limits().reject)?;
        id.reject(reason, &path)
    }
}
