//! A request with a queue pair, ready to be accepted.

use std::time::Duration;

use ibverbs::{Qpn, QueuePair, Rc};

use crate::connection::Connection;
use crate::deadline::Deadline;
use crate::error::ConnectError;
use crate::event::CmEventType;
use crate::id::Id;
use crate::params::ConnectParams;
use crate::path::Path;
use crate::request::Offer;
use crate::transition;

const VERB: &str = "rdma_accept";

/// A request with a queue pair in INIT: post the first receives, then accept. Dropping it rejects.
#[derive(Debug)]
#[must_use = "dropping it rejects the request"]
pub struct Pending {
    // Dropped in this order: the queue pair before its identifier.
    qp: QueuePair<Rc>,
    id: Id,
    path: Path,
    qp_num: Qpn,
    offer: Offer,
    private_data: Vec<u8>,
}

impl Pending {
    pub(crate) fn new(qp: QueuePair<Rc>, id: Id, path: Path, offer: Offer, private_data: Vec<u8>) -> Self {
        let qp_num = qp.qp_num();
        Self { qp, id, path, qp_num, offer, private_data }
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
    /// On iWARP the side that connected sends first: until its first message has arrived, this side must not send, or the connection fails.
    ///
    /// # Errors
    /// - [`ErrorKind::TimedOut`](ibverbs::ErrorKind::TimedOut): the peer did not finish the handshake;
    /// - [`ErrorKind::Disconnected`](ibverbs::ErrorKind::Disconnected): it went away, or rejected in turn;
    /// - [`ErrorKind::InvalidInput`](ibverbs::ErrorKind::InvalidInput): private data that does not fit, a count out of range.
    ///
    /// # References
    /// [`rdma_accept(3)`](https://man7.org/linux/man-pages/man3/rdma_accept.3.html)
    pub fn accept(
        self,
        params: &ConnectParams<'_>,
        timeout: Duration,
    ) -> std::result::Result<Connection, ConnectError> {
        let Self { mut qp, mut id, path, qp_num, offer, private_data } = self;
        let deadline = Deadline::after(timeout);
        params.check(VERB, path.private_data_limits().reply)?;
        path.check_same(VERB, &qp, qp_num)?;
        let mut params = params.within(qp.pd().context())?;
        params.responder_resources = params.responder_resources.min(offer.responder_resources);
        params.initiator_depth = params.initiator_depth.min(offer.initiator_depth);
        if !path.is_iwarp() {
            transition::to_send(&mut qp, &id, &params, &path)?;
        }
        id.accept(&params, qp_num.0, &path)?;
        let event = id.expect_event(VERB, &path, deadline)?;
        if event.event_type() != CmEventType::ESTABLISHED {
            return Err(ConnectError::from_event(VERB, &path, &event));
        }
        drop(event);
        Ok(Connection::new(qp, id, path, private_data))
    }
}
