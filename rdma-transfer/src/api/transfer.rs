//! Transfers and their progress.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ibverbs::{Error, ErrorKind, Result};
use rdmacm::internal::PollWindow;

use crate::failure::{Failure, lock};
use crate::protocol::progress::{Progress, State};
use crate::protocol::signal::Poll;

/// A transfer in flight. Dropping it does not end the transfer.
///
/// # Example
/// ```no_run
/// use rdma_transfer::{Peer, Region, RemoteRegion, Result, Span, Transfer, TransferOptions};
/// use std::time::Duration;
/// # fn f(peer: &Peer, region: &Region, to: &RemoteRegion) -> Result<()> {
/// let all = [Span::new(0, 0, region.len())];
/// let transfer: Transfer = peer.write(region, to, &all, TransferOptions::new())?;
/// while transfer.wait(Duration::from_secs(1)).is_err() && !transfer.has_ended() {
///     println!("{} of {} bytes", transfer.bytes_done(), transfer.bytes());
/// }
/// # Ok(()) }
/// ```
#[must_use = "a transfer can fail; wait for it"]
pub struct Transfer {
    progress: Arc<Progress>,
    /// The peers that can end it, for a thread that waits.
    peers: Vec<Weak<dyn Poll>>,
    window: Arc<PollWindow>,
}

impl Transfer {
    pub(crate) fn new(
        progress: Arc<Progress>,
        peers: Vec<Weak<dyn Poll>>,
        window: Arc<PollWindow>,
    ) -> Self {
        Self {
            progress,
            peers,
            window,
        }
    }

    /// Waits until the transfer has ended. After `Ok`, all bytes have been transferred.
    ///
    /// # Errors
    /// - [`ErrorKind::TimedOut`], and [`has_ended`](Self::has_ended) returns `false`: the transfer
    ///   is still in flight, and devices may access its memory. Wait again, or
    ///   [cancel](Self::cancel) it.
    /// - [`ErrorKind::TimedOut`] otherwise: its [deadline](crate::TransferOptions::deadline) has
    ///   passed.
    /// - [`ErrorKind::WrongState`]: it was [canceled](Self::cancel).
    /// - [`ErrorKind::Disconnected`]: a peer was disconnected by either side, or its control
    ///   connection was lost.
    /// - Other kinds: the memory permits no such access, for example because the peer has released
    ///   it.
    ///
    /// After an error of a transfer that has ended, no device accesses memory for it, neither here
    /// nor at the peer, and parts of the bytes may have been transferred. There are two exceptions,
    /// in which packets on their way may still be written to the peer's memory: after
    /// `Disconnected` until [`Peer::is_connected`](crate::Peer::is_connected) of the peer's engine
    /// returns `false`, and if [`is_confirmed`](Self::is_confirmed) returns `false`. After
    /// `Disconnected`, the other peers of a group have received all bytes.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        let Progress { state, ended, .. } = &*self.progress;
        let poll = || {
            for peer in self.peers.iter().filter_map(Weak::upgrade) {
                peer.poll_for_caller();
            }
        };
        let is_waiting = |state: &State| state.in_flight > 0;
        let state = ended.wait_while(state, timeout, &self.window, poll, is_waiting);
        if state.in_flight > 0 {
            let what = format!(
                "{} of {} bytes are transferred after {timeout:?}",
                state.bytes_done, state.bytes
            );
            return Err(Error::new(ErrorKind::TimedOut, "transfer", what)
                .with_help("wait again, or cancel the transfer"));
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

    /// Returns `false` if the transfer was canceled or has passed its deadline, and a peer did not
    /// confirm in time ([`EngineOptions::settle`](crate::EngineOptions::settle)) that it has closed
    /// a failed path. Its process hangs, for example. No device of this side accesses memory for
    /// the transfer. The peer's memory may be written to until the peer runs again and closes the
    /// path.
    pub fn is_confirmed(&self) -> bool {
        lock(&self.progress.state).is_confirmed
    }

    /// Returns the number of bytes, to all peers together.
    pub fn bytes(&self) -> u64 {
        lock(&self.progress.state).bytes
    }

    /// Returns the number of bytes that are known to have been transferred.
    pub fn bytes_done(&self) -> u64 {
        lock(&self.progress.state).bytes_done
    }

    /// Ends the transfer as its deadline would. It ends when none of its requests is in flight, so
    /// [wait](Self::wait) for it before the memory is used again.
    pub fn cancel(&self) {
        let reason = Failure::new(ErrorKind::WrongState, "the transfer was canceled");
        self.progress.cancel(&reason);
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.progress.state);
        f.debug_struct("Transfer")
            .field("has_ended", &(state.in_flight == 0))
            .field("bytes", &state.bytes)
            .field("bytes_done", &state.bytes_done)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_ends_with_its_last_job() {
        let progress = Progress::new(2, 100, Arc::default());
        let transfer = Transfer::new(Arc::clone(&progress), Vec::new(), Arc::default());
        let failure = Failure::new(ErrorKind::Completion, "first");
        progress.end_job(Some(&failure));
        progress.add_bytes(30);
        let error = transfer.wait(Duration::ZERO).expect_err("one job is left");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains("30 of 100 bytes"), "{error}");
        progress.end_job(Some(&Failure::new(ErrorKind::Disconnected, "second")));
        let error = transfer.wait(Duration::ZERO).expect_err("failed");
        assert_eq!(error.kind(), ErrorKind::Completion, "the first failure");
        assert!(transfer.has_ended());
        assert_eq!((transfer.bytes(), transfer.bytes_done()), (100, 30));
    }

    #[test]
    fn canceling_a_transfer_that_has_ended_changes_nothing() {
        let progress = Progress::new(1, 0, Arc::default());
        let transfer = Transfer::new(Arc::clone(&progress), Vec::new(), Arc::default());
        progress.end_job(None);
        transfer.cancel();
        transfer.wait(Duration::ZERO).expect("it was complete");
        assert!(!progress.is_canceled());
    }
}
