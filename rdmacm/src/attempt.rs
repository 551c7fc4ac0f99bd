//! A connection being made by the active side.

use std::sync::mpsc;
use std::thread;

use ibverbs::{Error, ErrorKind, QueuePair, Rc, Result};

use crate::deadline::Deadline;
use crate::error::{ConnectError, Rejection, timed_out};
use crate::id::Id;
use crate::params::ConnectParams;
use crate::path::Path;
use crate::reject::RejectReason;

const VERB: &str = "rdma_connect";

/// A queue pair and its identifier, of which the kernel may hold both until the peer answers.
#[derive(Debug)]
pub(crate) struct Attempt {
    // Dropped in this order: the queue pair before its identifier.
    pub(crate) qp: QueuePair<Rc>,
    pub(crate) id: Id,
}

impl Attempt {
    /// Sends the request. On iWARP that is a TCP handshake, which the kernel does within the call and without a time limit: so a thread
    /// calls, and keeps everything if the time is over first.
    pub(crate) fn start(
        qp: QueuePair<Rc>,
        id: Id,
        path: &Path,
        params: &ConnectParams<'_>,
        deadline: Deadline,
    ) -> std::result::Result<Self, ConnectError> {
        let attempt = Self { qp, id };
        if !path.is_iwarp() {
            attempt.request(params, path)?;
            return Ok(attempt);
        }
        let (answer, answered) = mpsc::sync_channel(1);
        let private_data = params.private_data.to_vec();
        let numbers = ConnectParams { private_data: &[], ..*params };
        let of_thread = path.clone();
        in_thread(path, move || {
            let requested = attempt.request(&ConnectParams { private_data: &private_data, ..numbers }, &of_thread);
            // If nobody waits any more, the attempt comes back in the error and is dropped here.
            drop(answer.send((attempt, requested)));
        })?;
        let received = match deadline.left() {
            Some(left) => answered.recv_timeout(left).ok(),
            None => answered.recv().ok(),
        };
        let (attempt, requested) = received.ok_or_else(|| timed_out(VERB, path))?;
        match requested {
            Ok(()) => Ok(attempt),
            Err(error) if error.errno().is_some_and(|errno| errno.0 == libc::ECONNREFUSED) => {
                let rejection = Rejection { reason: RejectReason::IWARP_REFUSED, private_data: Vec::new() };
                Err(ConnectError::rejected(VERB, path, rejection))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn request(&self, params: &ConnectParams<'_>, path: &Path) -> Result<()> {
        self.id.connect(params, self.qp.qp_num().0, path)
    }

    /// Ends a wait without an answer. On iWARP the kernel holds the queue pair until the peer answers or its own timer (10 s with
    /// Soft-iWARP) is over, and destroying it waits for that: a thread does it.
    pub(crate) fn give_up(self, path: &Path) -> Error {
        if path.is_iwarp() {
            // Without a thread it is dropped here, and waits.
            let _ = in_thread(path, move || drop(self));
        }
        timed_out(VERB, path)
    }
}

fn in_thread(path: &Path, work: impl FnOnce() + Send + 'static) -> Result<()> {
    match thread::Builder::new().name("rdma_connect".into()).spawn(work) {
        Ok(_detached) => Ok(()),
        Err(error) => Err(Error::new(ErrorKind::Os, VERB, format!("{path}: no thread for the handshake: {error}"))),
    }
}
