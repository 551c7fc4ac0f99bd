//! Retiring: from a completion to the request that it ends.

use super::pair::QueuePair;
use crate::cq::{Completion, CompletionInPlace, Ended, FieldSet, InPlace, Said, Says};
use crate::in_flight::{ForeignCompletion, Retired};
use crate::transport::SendTransport;

impl<T: SendTransport> QueuePair<T> {
    /// Retires a completion: takes the request out of the table and gives its buffer back.
    ///
    /// The completion of a send also retires the unsignalled ones before it; their buffers go back
    /// to their pools.
    ///
    /// # Errors
    /// [`ForeignCompletion`] if it belongs to another queue pair, or to one that was destroyed;
    /// nothing changes then.
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
        self.retire_as(completion.entry(), Said::of)
    }

    /// As [`retire`](Self::retire), of a completion that is where the provider shows it
    /// ([`CompletionQueueEx::poll_each`](crate::cq_ex::CompletionQueueEx::poll_each)). What it says
    /// beyond its status is read when it is asked for.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QueuePair, Rc, cq_ex::CompletionQueueEx};
    /// # fn f(cq: &mut CompletionQueueEx, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    /// cq.poll_each(|completion| qp.retire_in_place(completion)?.ok())?;
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_start_poll(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    #[allow(
        clippy::needless_pass_by_value,
        reason = "consuming the completion is the rule: a request is retired once"
    )]
    pub fn retire_in_place<'poll, F: FieldSet>(
        &mut self,
        completion: CompletionInPlace<'poll, F>,
    ) -> std::result::Result<Retired<InPlace<'poll>>, ForeignCompletion> {
        self.retire_as(completion.shown(), |ended| ended)
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    fn retire_as<E: Ended, C: Says>(
        &mut self,
        ended: E,
        keep: impl FnOnce(E) -> C,
    ) -> std::result::Result<Retired<C>, ForeignCompletion> {
        match self.tables.retire(ended) {
            Some((entry, status)) => Ok(Retired::new(ended, entry, status, keep(ended))),
            None => Err(ForeignCompletion {
                queue: ended.wr_id().queue(),
            }),
        }
    }
}
