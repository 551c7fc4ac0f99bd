//! The identity of a completion queue, as reported by completion channels.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The identity of a completion queue in this process. Identities are never reused.
///
/// # Example
/// This example finds the completion queue of an event:
/// ```no_run
/// use ibverbs::{CompletionChannel, CompletionQueue, CqId};
/// # fn f(channel: &CompletionChannel, queues: &mut [CompletionQueue]) -> ibverbs::Result<()> {
/// let id: Option<CqId> = channel.wait(None)?;
/// if let Some(cq) = queues.iter_mut().find(|cq| Some(cq.id()) == id) {
///     cq.arm(false)?; // arm first, then poll
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CqId(usize);

impl CqId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the identity as the context pointer of a queue, which is never dereferenced.
    pub(crate) fn as_context(self) -> *mut c_void {
        ptr::without_provenance_mut(self.0)
    }

    pub(crate) fn from_context(context: *mut c_void) -> Self {
        Self(context.addr())
    }
}
