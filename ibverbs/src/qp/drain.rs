//! Draining a queue pair before it is destroyed.

use std::time::{Duration, Instant};

use super::pair::QueuePair;
use crate::cq::{Completion, CompletionQueue};
use crate::error::{Error, ErrorKind, Result};
use crate::in_flight::Retired;
use crate::transport::ConnectedDuplexTransport;
use crate::wr;

/// The tag of the empty send that [`QueuePair::drain`] posts last.
pub const DRAIN_TAG: u64 = u64::MAX;

impl<T: ConnectedDuplexTransport> QueuePair<T> {
    /// Moves the queue pair to the error state and polls its completion queues, `queues`, until
    /// every request has retired, at most for `timeout`.
    ///
    /// `each` receives every retired request, and the completions of other queue pairs on the same
    /// queues, which it has to retire. If the send queue has a free slot, an empty send with
    /// [`DRAIN_TAG`] is posted last, so that unsignaled sends before it retire too.
    ///
    /// Not every driver flushes: siw does not, and Soft-RoCE does not flush requests posted in the
    /// error state. [`destroy`](QueuePair::destroy) returns the buffers that are left. On some devices
    /// it also returns those of [failed](crate::CompletionQueue#devices-with-strict-rules) requests.
    ///
    /// # Example
    /// ```no_run
    /// # use std::time::Duration;
    /// # use ibverbs::{CompletionQueue, Error, QueuePair, Rc};
    /// # fn f(mut qp: QueuePair<Rc>, cq: &mut CompletionQueue) -> Result<(), Error> {
    /// let mut buffers = Vec::new();
    /// let drained = qp.drain(&mut [cq], Duration::from_secs(1), |each| {
    ///     if let Ok(retired) = each {
    ///         buffers.extend(retired.into_buf());
    ///     }
    /// });
    /// let rest = qp.destroy()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`]; also fails if the device was removed or polling fails. The requests
    /// are then still in flight.
    ///
    /// # References
    /// IBA 10.3.1 (error state); the kernel's `ib_drain_qp`
    pub fn drain(
        &mut self,
        queues: &mut [&mut CompletionQueue],
        timeout: Duration,
        mut each: impl FnMut(Result<Retired, Completion<'_>>),
    ) -> Result<()> {
        self.to_error()?;
        let start = Instant::now();
        if !self.is_idle() && self.send_slots_free() > 0 {
            // If this fails, unsignaled sends may not retire before the timeout.
            let _ = self.post_send(wr::send(wr::Empty).tag(DRAIN_TAG));
        }
        while !self.is_idle() {
            for queue in &mut *queues {
                for completion in queue.poll()? {
                    if completion.queue() != self.id() {
                        each(Err(completion));
                    } else if let Ok(retired) = self.retire(completion) {
                        each(Ok(retired));
                    }
                }
            }
            if start.elapsed() > timeout && !self.is_idle() {
                let what = format!("{}: requests are still in flight", self.describe_state());
                return Err(Error::new(ErrorKind::TimedOut, "drain", what));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}
