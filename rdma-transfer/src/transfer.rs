//! Transfers and their progress.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ibverbs::{Error, ErrorKind, Result};

use crate::failure::{Failure, lock};

/// A transfer in flight. Dropping it does not end the transfer.
#[must_use = "a transfer can fail; wait for it"]
pub struct Transfer {
    progress: Arc<Progress>,
}

impl Transfer {
    pub(crate) fn new(progress: Arc<Progress>) -> Self {
        Self { progress }
    }

    /// Waits until the transfer has ended. After `Ok`, the peers have received all bytes, and the
    /// source can be changed.
    ///
    /// # Errors
    /// - [`ErrorKind::TimedOut`]: the transfer is still in flight, and devices may access its
    ///   memory. Wait again, or [disconnect](crate::Peer::disconnect) the peers.
    /// - Any other kind: the transfer has failed, its failed peers are disconnected, and no device
    ///   accesses its memory. Parts of the bytes may have arrived. The other peers of a group have
    ///   received all bytes.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        let state = lock(&self.progress.state);
        let (state, _) = self
            .progress
            .ended
            .wait_timeout_while(state, timeout, |state| state.in_flight > 0)
            .unwrap_or_else(PoisonError::into_inner);
        if state.in_flight > 0 {
            let what = format!(
                "{} of {} queue pairs have requests in flight after {timeout:?}",
                state.in_flight, state.parts
            );
            return Err(Error::new(ErrorKind::TimedOut, "transfer", what)
                .with_help("wait again, or disconnect the peer before the memory is used again"));
        }
        match &state.failure {
            Some(failure) => Err(failure.to_error("transfer")),
            None => Ok(()),
        }
    }

    /// Returns `true` if the transfer has ended, with or without success.
    pub fn has_ended(&self) -> bool {
        lock(&self.progress.state).in_flight == 0
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer")
            .field("has_ended", &self.has_ended())
            .finish()
    }
}

/// The progress of a transfer. Its parts are the shares of the queue pairs.
#[derive(Debug)]
pub(crate) struct Progress {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    parts: usize,
    in_flight: usize,
    /// The first failure of a part.
    failure: Option<Failure>,
}

impl Progress {
    pub(crate) fn new(parts: usize) -> Arc<Self> {
        let state = State {
            parts,
            in_flight: parts,
            failure: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            ended: Condvar::new(),
        })
    }

    /// Records the end of one part. The device must not access its memory any more.
    pub(crate) fn end_part(&self, failure: Option<&Failure>) {
        let mut state = lock(&self.state);
        state.in_flight -= 1;
        if state.failure.is_none() {
            state.failure = failure.cloned();
        }
        if state.in_flight == 0 {
            self.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_ends_with_its_last_part() {
        let progress = Progress::new(2);
        let transfer = Transfer::new(Arc::clone(&progress));
        let failure = Failure::new(ErrorKind::Completion, "first");
        progress.end_part(Some(&failure));
        let error = transfer.wait(Duration::ZERO).expect_err("one part is left");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains("1 of 2 queue pairs"), "{error}");
        progress.end_part(Some(&Failure::new(ErrorKind::Disconnected, "second")));
        let error = transfer.wait(Duration::ZERO).expect_err("failed");
        assert_eq!(error.kind(), ErrorKind::Completion, "the first failure");
        assert!(transfer.has_ended());
    }
}
