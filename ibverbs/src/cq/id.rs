//! Which completion queue an event is of.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which completion queue of this process; never reused.
///
/// # Example
/// Which of several completion queues a channel reports:
/// ```no_run
/// use ibverbs::{CompletionChannel, CompletionQueue, CqId};
/// # fn f(channel: &CompletionChannel, queues: &mut [CompletionQueue]) -> ibverbs::Result<()> {
/// let reported: Option<CqId> = channel.wait(None)?;
/// if let Some(cq) = queues.iter_mut().find(|cq| Some(cq.id()) == reported) {
///     cq.arm(false)?; // and then poll it
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

    pub(crate) fn as_context(self) -> *mut c_void {
        ptr::without_provenance_mut(self.0)
    }

    pub(crate) fn from_context(context: *mut c_void) -> Self {
        Self(context.addr())
    }
}
