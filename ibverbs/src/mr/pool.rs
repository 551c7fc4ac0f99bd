//! Buffers with one owner, cut from one registered region.

#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use rdma_sys::ibv_sge;

use super::access::AccessFlags;
use super::options::MemoryOptions;
use super::region::Region;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::pd::ProtectionDomain;

/// Pieces start at multiples of this, so that two of them never share a cache line.
const ALIGN: usize = 64;

/// One registered region cut into buffers of equal size.
///
/// Buffers keep the region alive; a buffer that is dropped goes back to its pool.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// let pool = pd.pool(16, 4096)?;
/// let mut buf = pool.take().expect("16 are free");
/// buf[..5].copy_from_slice(b"hello");
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[derive(Clone)]
pub struct Pool(Arc<Home>);

/// What the buffers of a pool share.
pub(super) struct Home {
    region: Region,
    stride: usize,
    size: u32,
    free: Mutex<Vec<u32>>,
}

impl Home {
    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProtectionDomain {
    /// Registers `count` buffers of `size` bytes each, zeroed, as one memory region.
    ///
    /// # Errors
    /// [`ErrorKind::LockedMemory`](crate::ErrorKind::LockedMemory) says what the limit is and how to raise it.
    pub fn pool(&self, count: usize, size: usize) -> Result<Pool> {
        self.pool_with(count, size, MemoryOptions::default())
    }

    /// As [`pool`](Self::pool), of memory obtained and registered as `options` say. Each buffer takes a multiple of 64 bytes of it.
    ///
    /// # Errors
    /// As [`pool`](Self::pool); [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for what the device cannot do, and what the
    /// kernel says where the memory is not to be had: no huge pages set aside, the caller's memory too short or not writable.
    pub fn pool_with(&self, count: usize, size: usize, options: MemoryOptions) -> Result<Pool> {
        Pool::register(self, count, size, options)
    }

    /// Registers a single buffer of `size` bytes, zeroed.
    ///
    /// # Errors
    /// As [`pool`](Self::pool).
    pub fn buf(&self, size: usize) -> Result<Buf> {
        self.pool(1, size)?.take().ok_or_else(Pool::no_piece)
    }
}

impl Pool {
    fn register(pd: &ProtectionDomain, count: usize, size: usize, options: MemoryOptions) -> Result<Self> {
        options.by_address("pool")?;
        let refused = || {
            Error::new(ErrorKind::InvalidInput, "pool", format!("{count} buffers of {size} bytes"))
                .with_hint("a pool has 1 to 2^32-1 buffers of 1 to 2^32-1 bytes")
        };
        let (Ok(pieces), Ok(piece_size @ 1..)) = (u32::try_from(count), u32::try_from(size)) else {
            return Err(refused());
        };
        let stride = size.next_multiple_of(ALIGN);
        let total = stride.checked_mul(count).filter(|&total| total > 0).ok_or_else(refused)?;
        let region = Region::register(pd, total, AccessFlags::LOCAL_WRITE, options)?;
        let free = Mutex::new((0..pieces).rev().collect());
        Ok(Self(Arc::new(Home { region, stride, size: piece_size, free })))
    }

    /// Takes a free buffer; `None` when all are taken or in flight.
    pub fn take(&self) -> Option<Buf> {
        let index = self.0.free().pop()?;
        // SAFETY: index < count, so the offset lies within the region.
        let start = unsafe { self.0.region.start().add(index as usize * self.0.stride) };
        Some(Buf {
            start,
            len: self.0.size,
            capacity: self.0.size,
            lkey: self.0.region.lkey(),
            index,
            home: Arc::clone(&self.0),
        })
    }

    /// How many buffers are free now.
    pub fn available(&self) -> usize {
        self.0.free().len()
    }

    /// The size of each buffer in bytes.
    pub fn buf_size(&self) -> usize {
        self.0.size as usize
    }

    /// A region of at most 2^32-1 bytes as one buffer, which is taken.
    pub(super) fn of_whole(region: Region) -> Buf {
        let size = u32::try_from(region.len()).unwrap_or(u32::MAX);
        let (start, lkey) = (region.start(), region.lkey());
        let home = Home { region, stride: size as usize, size, free: Mutex::new(Vec::with_capacity(1)) };
        Buf { start, len: size, capacity: size, lkey, index: 0, home: Arc::new(home) }
    }

    fn no_piece() -> Error {
        Error::new(ErrorKind::QueueFull, "pool", "no buffer is free")
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("buf_size", &self.0.size).field("available", &self.available()).finish()
    }
}

/// A registered buffer with one owner: `&[u8]` and `&mut [u8]` while you own it.
///
/// Posting moves it into the queue pair; the completion of the request gives it back. Its memory is registered for local access
/// only, so no peer can reach it, and the device writes to it only while it is posted.
///
/// The buffer shows its first `len()` bytes: all of it at first, what was received after a receive.
pub struct Buf {
    start: NonNull<u8>,
    len: u32,
    capacity: u32,
    lkey: u32,
    index: u32,
    home: Arc<Home>,
}

// SAFETY: a Buf is the one owner of its piece of memory.
unsafe impl Send for Buf {}
// SAFETY: a shared Buf only reads.
unsafe impl Sync for Buf {}

impl Buf {
    /// How many bytes the buffer can hold.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Shows the first `len` bytes from now on, at most [`capacity`](Self::capacity). The bytes keep their values.
    pub fn set_len(&mut self, len: usize) {
        self.len = u32::try_from(len).unwrap_or(u32::MAX).min(self.capacity);
    }

    /// What a send posts: the bytes shown.
    pub(crate) fn shown(&self) -> ibv_sge {
        ibv_sge { addr: self.address(), length: self.len, lkey: self.lkey }
    }

    /// What a receive posts: all of the buffer.
    pub(crate) fn whole(&self) -> ibv_sge {
        ibv_sge { addr: self.address(), length: self.capacity, lkey: self.lkey }
    }

    #[inline]
    pub(crate) fn pd(&self) -> &ProtectionDomain {
        self.home.region.pd()
    }

    fn address(&self) -> u64 {
        // The device is outside the program: exposing says that the memory may be reached through the number alone.
        self.start.as_ptr().expose_provenance() as u64
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the piece is initialised (zeroed at registration), `len` is at most its size, and while the Buf is owned
        // neither a device nor another owner writes to it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len as usize) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `deref`; the borrow is exclusive, and nobody reads the piece either.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len as usize) }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        self.home.free().push(self.index);
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf").field("len", &self.len).field("capacity", &self.capacity).finish_non_exhaustive()
    }
}
