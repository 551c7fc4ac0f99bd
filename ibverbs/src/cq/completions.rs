//! The completions that one poll took.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;

use rdma_sys::ibv_wc;

use super::completion::Completion;

/// The completions of one poll.
///
/// # Example
/// ```no_run
/// use ibverbs::{CompletionQueue, QueuePair, Rc};
/// # fn f(cq: &mut CompletionQueue, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
/// let completions = cq.poll()?;
/// println!("{} at once", completions.len()); // 0 when nothing has completed
/// for completion in completions {
///     qp.retire(completion)?.ok()?;
/// }
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)
pub struct Completions<'cq> {
    pub(crate) next: *const ibv_wc,
    pub(crate) left: u32,
    /// Where the queue reads how many are left, should this be forgotten.
    pub(crate) stays: &'cq mut u32,
    pub(crate) entries: PhantomData<&'cq [ibv_wc]>,
}

// SAFETY: it refers to entries that are written by the next poll only, which needs the queue after
// this.
unsafe impl Send for Completions<'_> {}
// SAFETY: as above.
unsafe impl Sync for Completions<'_> {}

impl Completions<'_> {
    /// Whether nothing has completed, or all was taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'cq> Iterator for Completions<'cq> {
    type Item = Completion<'cq>;

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    fn next(&mut self) -> Option<Completion<'cq>> {
        self.left = self.left.checked_sub(1)?;
        *self.stays = self.left;
        // SAFETY: one of the entries that were filled; they stay as they are until the next poll.
        unsafe {
            let wc = &*self.next;
            self.next = self.next.add(1);
            Some(Completion::new(wc))
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Completions<'_> {}

impl fmt::Debug for Completions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completions")
            .field("left", &self.len())
            .finish()
    }
}
