//! What the buffers of a pool share: one registered region, its pieces, and which of them are free.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma_sys::ibv_sge;

use super::region::Region;
use crate::pd::DomainKey;

/// What the buffers of a pool share.
pub(crate) struct Home {
    pub(crate) region: Region,
    pub(crate) size: u32,
    /// Fixed for good: a buffer points at its piece.
    pub(crate) pieces: Box<[Piece]>,
    free: Mutex<Vec<u32>>,
}

/// What a buffer is: a place of the region. Who has the one buffer that points at it owns place and
/// memory.
pub(crate) struct Piece {
    /// As a request describes all of it: ready to be copied.
    pub(crate) whole: ibv_sge,
    pub(crate) start: NonNull<u8>,
    pub(crate) domain: DomainKey,
    /// While the piece is taken: one count of the [`Home`]'s.
    pub(crate) home: Cell<*const Home>,
    pub(crate) len: Cell<u32>,
    index: u32,
}

// SAFETY: the region and the list are both; a piece is only used by the one owner of its buffer,
// or, while it is free, by who took it off the list.
unsafe impl Send for Home {}
// SAFETY: as above.
unsafe impl Sync for Home {}

impl Home {
    pub(crate) fn new(
        region: Region,
        count: u32,
        stride: usize,
        size: u32,
        free: Vec<u32>,
    ) -> Self {
        let piece = |index: u32| {
            // SAFETY: the region has `count` strides.
            let start = unsafe { region.start().add(index as usize * stride) };
            // The device is outside the program: exposing says that the memory may be reached
            // through the number alone.
            let addr = start.as_ptr().expose_provenance() as u64;
            Piece {
                whole: ibv_sge {
                    addr,
                    length: size,
                    lkey: region.lkey(),
                },
                start,
                domain: region.pd().key(),
                home: Cell::new(ptr::null()),
                len: Cell::new(size),
                index,
            }
        };
        let pieces = (0..count).map(piece).collect();
        Self {
            region,
            size,
            pieces,
            free: Mutex::new(free),
        }
    }

    pub(crate) fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Piece {
    /// Back to the list, and the count with it.
    ///
    /// # Safety
    /// The one buffer of the piece goes.
    #[inline(never)]
    pub(crate) unsafe fn give_back(this: NonNull<Self>) {
        // SAFETY: the caller's promise; the count was taken with the piece. No reference to the
        // piece is alive when the Home may end.
        let (home, index) =
            unsafe { (Arc::from_raw(this.as_ref().home.get()), this.as_ref().index) };
        home.free().push(index);
    }
}
