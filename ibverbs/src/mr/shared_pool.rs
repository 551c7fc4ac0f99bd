//! State shared by the buffers of a pool: the registered region, its slots and the free list.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma_sys::ibv_sge;

use super::region::Region;
use crate::pd::DomainKey;

/// State shared by the buffers of a pool.
pub(crate) struct SharedPool {
    pub(crate) region: Region,
    pub(crate) size: u32,
    /// Never moved or resized, because buffers point to their slots.
    pub(crate) slots: Box<[PoolSlot]>,
    free: Mutex<Vec<u32>>,
}

/// A buffer's part of the region. The owner of the only [`Buf`](super::buf::Buf) that points to
/// the slot owns the slot and its memory.
pub(crate) struct PoolSlot {
    /// Entry for the whole buffer.
    pub(crate) sge: ibv_sge,
    pub(crate) start: NonNull<u8>,
    pub(crate) domain: DomainKey,
    /// One reference to the [`SharedPool`] while the slot is taken.
    pub(crate) pool: Cell<*const SharedPool>,
    pub(crate) len: Cell<u32>,
    index: u32,
}

// SAFETY: the region and the list are Send. A slot is only accessed by the owner of its buffer, or,
// while it is being taken from the free list, by the thread that takes it.
unsafe impl Send for SharedPool {}
// SAFETY: as for Send; the region and the list are Sync as well.
unsafe impl Sync for SharedPool {}

impl SharedPool {
    pub(crate) fn new(
        region: Region,
        count: u32,
        stride: usize,
        size: u32,
        free: Vec<u32>,
    ) -> Self {
        let slot = |index: u32| {
            // SAFETY: the region is `count` strides long.
            let start = unsafe { region.start().add(index as usize * stride) };
            // Exposes the provenance, because the device accesses the memory by its address alone.
            let addr = start.as_ptr().expose_provenance() as u64;
            PoolSlot {
                sge: ibv_sge {
                    addr,
                    length: size,
                    lkey: region.lkey(),
                },
                start,
                domain: region.pd().key(),
                pool: Cell::new(ptr::null()),
                len: Cell::new(size),
                index,
            }
        };
        let slots = (0..count).map(slot).collect();
        Self {
            region,
            size,
            slots,
            free: Mutex::new(free),
        }
    }

    pub(crate) fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolSlot {
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Returns the slot to the free list and drops its reference to the pool.
    ///
    /// # Safety
    /// Must be called once, by the drop of the only buffer of the slot.
    #[inline(never)]
    pub(crate) unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the same contract. No reference to the slot is alive when the SharedPool may be
        // dropped.
        let (index, pool) = unsafe { (this.as_ref().index, Self::take_pool(this)) };
        pool.free().push(index);
    }

    /// Returns the slot's reference to the pool. A slot that is not returned to the free list is
    /// never used again.
    ///
    /// # Safety
    /// Must be called once, by the drop of the only buffer of the slot.
    #[inline]
    pub(crate) unsafe fn take_pool(this: NonNull<Self>) -> Arc<SharedPool> {
        // SAFETY: the caller guarantees that the slot is taken, so it owns one reference.
        unsafe { Arc::from_raw(this.as_ref().pool.get()) }
    }
}
