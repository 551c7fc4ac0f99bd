//! A route with a queue pair, ready to connect.

use std::time::Duration;

use ibverbs::{Qpn, QueuePair, Rc, Result};

use crate::attempt::Attempt;
use crate::connection::Connection;
use crate::deadline::Deadline;
use crate::error::ConnectError;
use crate::event::CmEventType;
use crate::id::Id;
use crate::params::ConnectParams;
use crate::path::Path;
use crate::transition;

const VERB: &str = "rdma_connect";

/// A route with a queue pair in INIT: post the first receives, then connect.
#[derive(Debug)]
#[must_use = "nothing is connected until `connect`"]
pub struct Ready {
    // Dropped in this order: the queue pair before its identifier.
    qp: QueuePair<Rc>,
    id: Id,
    path: Path,
    qp_num: Qpn,
}

impl Ready {
    pub(crate) fn new(qp: QueuePair<Rc>, id: Id, path: Path) -> Self {
        let qp_num = qp.qp_num();
        Self { qp, id, path, qp_num }
    }

    /// The queue pair: receives posted now are there before the peer's first message can be.
    pub fn qp_mut(&mut self) -> &mut QueuePair<Rc> {
        &mut self.qp
    }

    /// Sends the request and waits for the answer, together at most for `timeout`.
    ///
    /// The buffers posted to the queue pair go back to their pools if it fails; on iWARP, after a timeout, only when the kernel lets go
    /// of it (see the [crate documentation](crate)).
    ///
    /// # Errors
    /// - [`ErrorKind::Disconnected`](ibverbs::ErrorKind::Disconnected) and a [`Rejection`](crate::Rejection): the peer rejected, or
    ///   nobody listens;
    /// - [`ErrorKind::TimedOut`](ibverbs::ErrorKind::TimedOut): no answer in time;
    /// - [`ErrorKind::InvalidInput`](ibverbs::ErrorKind::InvalidInput): private data that does not fit, a count out of range.
    ///
    /// # References
    /// [`rdma_connect(3)`](https://man7.org/linux/man-pages/man3/rdma_connect.3.html),
    /// [`rdma_establish(3)`](https://man7.org/linux/man-pages/man3/rdma_establish.3.html)
    pub fn connect(
        self,
        params: &ConnectParams<'_>,
        timeout: Duration,
    ) -> std::result::Result<Connection, ConnectError> {
        let Self { qp, id, path, qp_num } = self;
        let deadline = Deadline::after(timeout);
        params.check(VERB, path.private_data_limits().request)?;
        path.check_same(VERB, &qp, qp_num)?;
        let params = params.within(qp.pd().context())?;
        let mut attempt = Attempt::start(qp, id, &path, &params, deadline)?;
        let Some(answer) = Answer::wait(&attempt.id, &path, deadline)? else {
            return Err(attempt.give_up(&path).into());
        };
        if answer.to_follow {
            follow(&mut attempt, &params, &path)?;
        }
        let Attempt { qp, id } = attempt;
        Ok(Connection::new(qp, id, path, answer.private_data))
    }
}

/// A peer's yes.
struct Answer {
    private_data: Vec<u8>,
    /// Whether this side's queue pair has to follow. On iWARP the kernel has moved it.
    to_follow: bool,
}

impl Answer {
    /// `None` when there is no answer until the deadline.
    fn wait(id: &Id, path: &Path, deadline: Deadline) -> std::result::Result<Option<Self>, ConnectError> {
        let Some(event) = id.next_event(deadline)? else { return Ok(None) };
        let to_follow = match event.event_type() {
            CmEventType::CONNECT_RESPONSE => true,
            CmEventType::ESTABLISHED => false,
            _ => return Err(ConnectError::from_event(VERB, path, &event)),
        };
        Ok(Some(Self { private_data: event.private_data().to_vec(), to_follow }))
    }
}

/// InfiniBand and RoCE: the peer has accepted and waits for this side's queue pair to follow.
fn follow(attempt: &mut Attempt, params: &ConnectParams<'_>, path: &Path) -> Result<()> {
    let Attempt { qp, id } = attempt;
    let moved = transition::to_send(qp, id, params, path);
    if moved.is_err() {
        // So that the peer need not wait for its timeout; the first error is the one that counts.
        let _ = id.reject(&[], path);
    }
    moved?;
    id.establish(path)
}
