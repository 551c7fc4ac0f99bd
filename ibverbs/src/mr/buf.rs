//! Buffers with one owner, each a part of a registered region.

#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::ibv_sge;

use super::region::Region;
use super::shared_pool::{PoolSlot, SharedPool};
use crate::pd::{DomainKey, ProtectionDomain};

/// A registered buffer with one owner, accessible as `&[u8]` and `&mut [u8]`.
///
/// Posting moves the buffer into the queue pair, and the completion of the request returns it. Its
/// memory is registered for local access only: peers cannot access it, and the device writes to it
/// only while it is posted.
///
/// The slice covers the first `len()` bytes. Initially that is the whole buffer; after a receive it
/// is the received message.
///
/// A `Buf` is one pointer wide, so moving it is cheap.
///
/// It can be used where the standard library takes bytes: as `AsRef<[u8]>`, in comparisons with
/// slices and arrays, in `for byte in &buf`, as `std::io::Cursor::new(buf)` to read from, and as
/// `&mut &mut buf[..]` to write to.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// let mut buf = pd.buf(4096)?;
/// buf[..5].copy_from_slice(b"hello");
/// buf.set_len(5); // a send sends 5 bytes
/// assert_eq!(buf, b"hello");
/// assert_eq!(buf.capacity(), 4096);
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_reg_mr")]
#[repr(transparent)]
pub struct Buf(NonNull<PoolSlot>);

// SAFETY: a Buf is the only owner of its slot.
unsafe impl Send for Buf {}
// SAFETY: a shared Buf only allows reading.
unsafe impl Sync for Buf {}

impl Buf {
    /// Creates the buffer of a slot that is not on the free list and has no buffer.
    pub(crate) fn from_slot(pool: Arc<SharedPool>, index: u32) -> Self {
        let buf = Self(NonNull::from(&pool.slots[index as usize]));
        buf.slot().len.set(buf.slot().sge.length);
        // The slot owns this reference until `release` takes it back.
        buf.slot().pool.set(Arc::into_raw(pool));
        buf
    }

    #[inline]
    fn slot(&self) -> &PoolSlot {
        // SAFETY: the Buf owns a reference to the SharedPool that contains the slot.
        unsafe { self.0.as_ref() }
    }

    /// Returns the number of bytes that the buffer can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.slot().sge.length as usize
    }

    /// Sets the length of the slice, at most [`capacity`](Self::capacity). The bytes keep their
    /// values.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        let slot = self.slot();
        slot.len
            .set(u32::try_from(len).unwrap_or(u32::MAX).min(slot.sge.length));
    }

    /// Returns the entry that a send posts: the first `len()` bytes.
    #[inline]
    pub(crate) fn sge(&self) -> ibv_sge {
        let slot = self.slot();
        ibv_sge {
            length: slot.len.get(),
            ..slot.sge
        }
    }

    /// Returns the entry that a receive posts: the whole buffer.
    #[inline]
    pub(crate) fn capacity_sge(&self) -> &ibv_sge {
        &self.slot().sge
    }

    /// Drops the buffer without returning it to its pool. The memory is not used again until it is
    /// deregistered, after the pool and its other buffers are dropped.
    pub(crate) fn discard(self) {
        // SAFETY: this is the only Buf of the slot, and it is neither used nor dropped afterwards.
        drop(unsafe { PoolSlot::take_pool(ManuallyDrop::new(self).0) });
    }

    /// Returns the region of the buffer, unless it has other buffers or a pool.
    pub(crate) fn try_into_region(self) -> Result<Region, Self> {
        let slot = ManuallyDrop::new(self).0;
        // SAFETY: this is the only Buf of the slot. It is neither used nor dropped afterwards, and
        // if a new one is created, the slot owns a reference again.
        let pool = unsafe { PoolSlot::take_pool(slot) };
        // SAFETY: `pool` keeps the slot alive.
        let (index, len) = unsafe { (slot.as_ref().index(), slot.as_ref().len.get()) };
        Arc::try_unwrap(pool)
            .map(|pool| pool.region)
            .map_err(|pool| {
                let mut buf = Self::from_slot(pool, index);
                buf.set_len(len as usize);
                buf
            })
    }

    #[inline]
    pub(crate) fn domain(&self) -> DomainKey {
        self.slot().domain
    }

    /// Returns the protection domain in which the buffer is registered.
    pub fn pd(&self) -> &ProtectionDomain {
        // SAFETY: the Buf owns a reference to the SharedPool.
        unsafe { &*self.slot().pool.get() }.region.pd()
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let slot = self.slot();
        // SAFETY: the memory is initialized (zeroed at registration) and `len` is at most its size.
        // A posted Buf has moved, so no device and no other owner writes to the memory during the
        // borrow.
        unsafe { std::slice::from_raw_parts(slot.start.as_ptr(), slot.len.get() as usize) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let slot = self.slot();
        // SAFETY: as in `deref`; the borrow is exclusive, so there are no other readers either.
        unsafe { std::slice::from_raw_parts_mut(slot.start.as_ptr(), slot.len.get() as usize) }
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this is the only Buf of the slot, and it is not used afterwards.
        unsafe { PoolSlot::release(self.0) }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}
