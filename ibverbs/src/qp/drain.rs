//! Ending a connection in order: what is in flight is flushed and comes back before the queue pair
//! is destroyed.

use std::time::{Duration, Instant};

use super::pair::QueuePair;
use crate::cq::{Completion, CompletionQueue};
use crate::error::Result;
use crate::in_flight::Retired;
use crate::transport::ConnectedDuplexTransport;
use crate::wr;

/// The tag of the empty send that [`QueuePair::drain`] posts last, as a mark.
pub const DRAIN_TAG: u64 = u64::MAX;

impl<T: ConnectedDuplexTransport> QueuePair<T> {
    /// Puts the queue pair into the error state and polls `queues`, those that it completes on,
    /// until every request has retired or the time is over; whether all have.
    ///
    /// `each` gets what is retired, and the completions of other queue pairs on the same queues,
    /// for it to retire. An empty send with [`DRAIN_TAG`] is posted last where there is room,
    /// so that unsignalled sends before it retire too.
    ///
    /// Drivers need not flush (siw and, for what was posted in error, Soft-RoCE do not): what is
    /// left comes back from [`destroy`](QueuePair::destroy).
    ///
    /// # Example
    /// ```no_run
    /// # use std::time::Duration;
    /// # use ibverbs::{CompletionQueue, Error, QueuePair, Rc};
    /// # fn f(mut qp: QueuePair<Rc>, cq: &mut CompletionQueue) -> Result<(), Error> {
    /// let mut buffers = Vec::new();
    /// qp.drain(&mut [cq], Duration::from_secs(1), |each| {
    ///     if let Ok(retired) = each {
    ///         buffers.extend(retired.into_buf());
    ///     }
    /// })?;
    /// let rest = qp.destroy()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Fails when the device is gone, and with errors of polling: neither ends a request.
    ///
    /// # References
    /// IBA 10.3.1 (error state); `ib_drain_qp` of the kernel
    pub fn drain(
        &mut self,
        queues: &mut [&mut CompletionQueue],
        timeout: Duration,
        mut each: impl FnMut(std::result::Result<Retired, Completion<'_>>),
    ) -> Result<bool> {
        self.to_error()?;
        let start = Instant::now();
        if !self.is_idle() && self.send_slots_free() > 0 {
            // A refusal changes nothing: then there is no mark.
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
            if start.elapsed() > timeout {
                return Ok(self.is_idle());
            }
            std::thread::yield_now();
        }
        Ok(true)
    }
}
