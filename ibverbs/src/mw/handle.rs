//! The handle of a memory window, and what it keeps alive.

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

/// The handle of a window and the memory that it may be bound to.
pub(crate) struct Handle {
    pub(crate) mw: NonNull<ibv_mw>,
    pub(crate) kind: u32,
    /// The key of its last binding.
    pub(crate) rkey: u32,
    /// Whether it was freed before its time, because the queue pair that bound it was about to be
    /// destroyed.
    pub(crate) freed: AtomicBool,
    pub(crate) parents: ManuallyDrop<(Option<Arc<Region>>, ProtectionDomain)>,
}

// SAFETY: a window is a handle; libibverbs' functions on it are thread safe.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    pub(crate) fn as_ptr(&self) -> *mut ibv_mw {
        self.mw.as_ptr()
    }

    pub(crate) fn is<K: WindowType>(&self) -> bool {
        self.kind == K::RAW
    }

    /// It is bound to nothing, as the device said.
    pub(crate) fn unbound(mut self) -> Self {
        self.parents.0 = None;
        self
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.parents.1
    }

    /// Whether it can be bound anew.
    pub(crate) fn is_live(&self) -> bool {
        !self.freed.load(Ordering::Acquire)
    }

    /// Frees the window; whether it is free.
    ///
    /// # Safety
    /// Nobody else uses the handle's pointer at this time.
    pub(crate) unsafe fn free(&self) -> bool {
        // SAFETY: live, and the caller's promise.
        if self.is_live() && unsafe { ibv_dealloc_mw(self.mw.as_ptr()) } == 0 {
            self.freed.store(true, Ordering::Release);
        }
        !self.is_live()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: nobody else is left. Requests that name the window hold what this is part of.
        if unsafe { self.free() } {
            // SAFETY: not used after; freeing a window ends its binding.
            unsafe { ManuallyDrop::drop(&mut self.parents) };
        } else {
            crate::leak::count(); // it may still be bound: the region stays, too
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
