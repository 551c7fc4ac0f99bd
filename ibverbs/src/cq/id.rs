//! Which completion queue an event is of.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which completion queue of this process; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CqId(usize);

impl CqId {
    pub(super) fn next() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn as_context(self) -> *mut c_void {
        ptr::without_provenance_mut(self.0)
    }

    pub(crate) fn from_context(context: *mut c_void) -> Self {
        Self(context.addr())
    }
}
