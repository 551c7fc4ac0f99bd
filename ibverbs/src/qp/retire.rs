//! Retiring completions.

use super::pair::QueuePair;
use crate::cq::Completion;
use crate::in_flight::{ForeignCompletion, Retired};
use crate::transport::SendTransport;

impl<T: SendTransport> QueuePair<T> {
    /// Retires a completion: removes its request from the table and returns the buffer.
    ///
    /// The completion of a send also retires the unsignaled sends before it, whose buffers return
    /// to their pools.
    ///
    /// # Errors
    /// [`ForeignCompletion`] if the completion belongs to another queue pair or to a destroyed one.
    /// Nothing changes then.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{CompletionQueue, QueuePair, Rc};
    /// # fn f(cq: &mut CompletionQueue, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    /// for completion in cq.poll()? {
    ///     let retired = qp.retire(completion)?;
    ///     retired.ok()?;
    ///     if let Some(buf) = retired.into_buf() {
    ///         println!("{} bytes", buf.len());
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    #[allow(
        clippy::needless_pass_by_value,
        reason = "consuming the completion is the rule: a request is retired once"
    )]
    pub fn retire(
        &mut self,
        completion: Completion<'_>,
    ) -> std::result::Result<Retired, ForeignCompletion> {
        let wc = completion.wc();
        match self.tables.retire(wc) {
            Some(retired) => Ok(retired),
            None => Err(ForeignCompletion {
                queue: completion.queue(),
            }),
        }
    }
}
