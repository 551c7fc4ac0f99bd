//! The completions returned by one poll.

use std::fmt;

use rdma_sys::ibv_wc;

use super::completion::Completion;
use super::poll_state::PendingEntries;

/// Iterator over the completions returned by
/// [`CompletionQueue::poll`](crate::CompletionQueue::poll).
///
/// # Example
/// ```no_run
/// use ibverbs::{CompletionQueue, QueuePair, Rc};
/// # fn f(cq: &mut CompletionQueue, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
/// let completions = cq.poll()?;
/// println!("{} completions", completions.len()); // 0 if nothing has completed
/// for completion in completions {
///     qp.retire(completion)?.check()?;
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_poll_cq")]
pub struct Completions<'cq>(pub(crate) PendingEntries<'cq, ibv_wc>);

impl Completions<'_> {
    /// Returns `true` if no completions are left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'cq> Iterator for Completions<'cq> {
    type Item = Completion<'cq>;

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    fn next(&mut self) -> Option<Completion<'cq>> {
        self.0.next().map(Completion::new)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Completions<'_> {}

impl fmt::Debug for Completions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completions")
            .field("len", &self.len())
            .finish()
    }
}
