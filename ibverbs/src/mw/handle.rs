//! Handles of memory windows, and the objects that they keep alive.

#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rdma_sys::{ibv_dealloc_mw, ibv_mw};

use super::kind::WindowType;
use crate::mr::Region;
use crate::pd::ProtectionDomain;

/// The handle of a window, with the region that it may be bound to.
pub(crate) struct Handle {
    pub(crate) mw: NonNull<ibv_mw>,
    pub(crate) kind: u32,
    /// The key of the last binding.
    pub(crate) rkey: u32,
    /// `true` after the window was freed early, because the queue pair that bound it was about to
    /// be destroyed.
    pub(crate) freed: AtomicBool,
    pub(crate) parents: ManuallyDrop<(Option<Arc<Region>>, ProtectionDomain)>,
}

// SAFETY: a window is a handle, and the libibverbs functions on it are thread-safe.
unsafe impl Send for Handle {}
// SAFETY: as for Send.
unsafe impl Sync for Handle {}

impl Handle {
    pub(crate) fn as_ptr(&self) -> *mut ibv_mw {
        self.mw.as_ptr()
    }

    pub(crate) fn has_type<K: WindowType>(&self) -> bool {
        self.kind == K::RAW
    }

    /// Releases the region, after the device reported that the window is not bound.
    pub(crate) fn unbound(mut self) -> Self {
        self.parents.0 = None;
        self
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.parents.1
    }

    /// Returns `true` if the window was not freed and can be bound again.
    pub(crate) fn is_live(&self) -> bool {
        !self.freed.load(Ordering::Acquire)
    }

    /// Frees the window. Returns `true` if it is free.
    ///
    /// # Safety
    /// No other code may use the pointer of the handle during the call.
    pub(crate) unsafe fn free(&self) -> bool {
        // SAFETY: the window is live, and the caller guarantees exclusive use.
        if self.is_live() && unsafe { ibv_dealloc_mw(self.mw.as_ptr()) } == 0 {
            self.freed.store(true, Ordering::Release);
        }
        !self.is_live()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: this is the only user: requests that name the window hold a reference to its
        // owner.
        if unsafe { self.free() } {
            // SAFETY: not used afterwards; freeing a window ends its binding.
            unsafe { ManuallyDrop::drop(&mut self.parents) };
        } else {
            // The window may still be bound, so its region is leaked, too.
            crate::leak::count_leaked_object();
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("type", &self.kind)
            .field("rkey", &self.rkey)
            .finish_non_exhaustive()
    }
}
