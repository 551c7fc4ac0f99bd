//! The allocation behind a region: raw, whole pages, zeroed, never moved and never a `Box`.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::kind::ErrorKind;

const PAGE: usize = 4096;

/// Memory that no Rust reference covers for longer than the owner of a piece lends one.
pub(crate) struct Allocation {
    start: NonNull<u8>,
    len: usize,
    /// Whole pages: a registration pins pages, which are then shared with nothing else.
    layout: Layout,
}

// SAFETY: plain memory with one owner; who may touch which part is the business of the types built on it.
unsafe impl Send for Allocation {}
// SAFETY: as above; a shared Allocation gives out a pointer only.
unsafe impl Sync for Allocation {}

impl Allocation {
    pub(crate) fn zeroed(len: usize) -> Result<Self> {
        let refused = || {
            Error::new(ErrorKind::InvalidInput, "allocate", format!("{len} bytes"))
                .with_hint("a region has at least one byte and fits into memory")
        };
        let layout = Layout::from_size_align(len, PAGE).map_err(|_| refused())?.pad_to_align();
        if len == 0 {
            return Err(refused());
        }
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        NonNull::new(start).map(|start| Self { start, len, layout }).ok_or_else(refused)
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout, freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}
