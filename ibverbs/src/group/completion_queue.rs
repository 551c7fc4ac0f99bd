//! Completion queues of a group.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::cq::{CompletionQueue, Completions, CqId, CqOptions};
use crate::error::Result;
use crate::pd::ParentDomain;

/// A completion queue of a [`ThreadGroup`](super::ThreadGroup). Only queue pairs of the same group
/// complete on it, and it cannot be sent to another thread.
///
/// # Example
/// ```no_run
/// use ibverbs::group::{GroupCompletionQueue, Grouped};
/// use ibverbs::{QueuePair, Rc};
/// # fn f(cq: &mut GroupCompletionQueue, qp: &mut QueuePair<Grouped<Rc>>) -> ibverbs::Result<()> {
/// for completion in cq.poll()? {
///     qp.retire(completion)?.check()?;
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_create_cq_ex")]
pub struct GroupCompletionQueue {
    /// Never lent to the caller: queue pairs outside of the group must not complete on it.
    queue: CompletionQueue,
    parent: Arc<ParentDomain>,
    one_thread: PhantomData<*const ()>,
}

impl GroupCompletionQueue {
    pub(super) fn create(parent: &Arc<ParentDomain>, options: CqOptions<'_>) -> Result<Self> {
        Ok(Self {
            queue: CompletionQueue::create_in_group(parent, options)?,
            parent: Arc::clone(parent),
            one_thread: PhantomData,
        })
    }

    pub(super) fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// Returns `true` if the queue is of the group with this domain.
    pub(super) fn is_in(&self, parent: &Arc<ParentDomain>) -> bool {
        Arc::ptr_eq(&self.parent, parent)
    }

    /// Returns at most 32 completions, without waiting. See [`CompletionQueue::poll`].
    ///
    /// # Errors
    /// Same as [`CompletionQueue::poll`].
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub fn poll(&mut self) -> Result<Completions<'_>> {
        self.queue.poll()
    }

    /// Requests one event on the completion channel. See [`CompletionQueue::arm`].
    ///
    /// # Errors
    /// Same as [`CompletionQueue::arm`].
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self, solicited_only: bool) -> Result<()> {
        self.queue.arm(solicited_only)
    }

    /// Returns the identity of this queue, which its events report.
    pub fn id(&self) -> CqId {
        self.queue.id()
    }

    /// Returns the number of entries that the queue holds. The device may have rounded it up.
    pub fn depth(&self) -> usize {
        self.queue.depth()
    }
}

impl fmt::Debug for GroupCompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCompletionQueue")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}
