//! Retiring completions.

use super::pair::QueuePair;
use crate::cq::Completion;
use crate::error::Result;
use crate::in_flight::{ForeignCompletion, Retired};
use crate::transport::SendTransport;

impl<T: SendTransport> QueuePair<T> {
    /// Retires a completion: removes its request from the table and returns the buffer.
    ///
    /// The completion of a send also retires the unsignaled sends before it, whose buffers return
    /// to their pools. Which requests are unsignaled depends on the device
    /// ([`signaled`](crate::wr::SendRequest::signaled)).
    ///
    /// # Errors
    /// [`ForeignCompletion`] if the completion belongs to another queue pair or to a destroyed one.
    /// Nothing changes then, but the completion is lost: a request of another queue keeps its slot
    /// and its buffer until that queue is destroyed. [`try_retire`](Self::try_retire) returns it.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{CompletionQueue, QueuePair, Rc};
    /// # fn f(cq: &mut CompletionQueue, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    /// for completion in cq.poll()? {
    ///     let retired = qp.retire(completion)?;
    ///     retired.check()?;
    ///     if let Some(buf) = retired.into_buf() {
    ///         println!("{} bytes", buf.len());
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_poll_cq")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn retire(&mut self, completion: Completion<'_>) -> Result<Retired, ForeignCompletion> {
        self.try_retire(completion)
            .map_err(|completion| ForeignCompletion {
                queue: completion.queue(),
            })
    }

    /// Like [`retire`](Self::retire), but returns a completion that belongs to another queue.
    ///
    /// # Errors
    /// The unchanged completion. If no queue retires it, its queue was destroyed.
    ///
    /// # Example
    /// Two queue pairs share a completion queue:
    /// ```no_run
    /// use ibverbs::{CompletionQueue, QueuePair, Rc};
    /// # type Qp = QueuePair<Rc>;
    /// # fn f(cq: &mut CompletionQueue, a: &mut Qp, b: &mut Qp) -> ibverbs::Result<()> {
    /// for completion in cq.poll()? {
    ///     match a.try_retire(completion) {
    ///         Ok(retired) => retired.check()?,
    ///         Err(completion) => b.retire(completion)?.check()?,
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_poll_cq")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn try_retire<'cq>(
        &mut self,
        completion: Completion<'cq>,
    ) -> Result<Retired, Completion<'cq>> {
        self.tables.retire(completion.wc()).ok_or(completion)
    }
}
