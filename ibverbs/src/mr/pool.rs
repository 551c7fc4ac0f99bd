//! Buffers with one owner, cut from one registered region.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

use rdma_sys::ibv_sge;

use super::access::AccessFlags;
use super::options::MemoryOptions;
use super::region::Region;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::pd::{DomainKey, ProtectionDomain};

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
///
/// # References
/// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
#[derive(Clone)]
pub struct Pool(Arc<Home>);

/// What the buffers of a pool share.
struct Home {
    region: Region,
    size: u32,
    /// Fixed for good: a [`Buf`] points at its piece.
    pieces: Box<[Piece]>,
    free: Mutex<Vec<u32>>,
}

/// What a buffer is: a place of the region. Who has the one [`Buf`] that points at it owns place and memory.
struct Piece {
    start: NonNull<u8>,
    domain: DomainKey,
    /// While the piece is taken: one count of the [`Home`]'s.
    home: Cell<*const Home>,
    lkey: u32,
    capacity: u32,
    len: Cell<u32>,
    index: u32,
}

// SAFETY: the region and the list are both; a piece is only used by the one owner of its Buf, or, while it is free, by who took it off
// the list.
unsafe impl Send for Home {}
// SAFETY: as above.
unsafe impl Sync for Home {}

impl Home {
    fn new(region: Region, count: u32, stride: usize, size: u32, free: Vec<u32>) -> Self {
        let piece = |index: u32| Piece {
            // SAFETY: the region has `count` strides.
            start: unsafe { region.start().add(index as usize * stride) },
            domain: region.pd().key(),
            home: Cell::new(ptr::null()),
            lkey: region.lkey(),
            capacity: size,
            len: Cell::new(size),
            index,
        };
        let pieces = (0..count).map(piece).collect();
        Self { region, size, pieces, free: Mutex::new(free) }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The buffer of a piece that is off the list and has none.
    fn buf(self: Arc<Self>, index: u32) -> Buf {
        let piece = &self.pieces[index as usize];
        piece.len.set(piece.capacity);
        let buf = Buf(NonNull::from(piece));
        piece.home.set(Arc::as_ptr(&self));
        std::mem::forget(self); // the count is the piece's now
        buf
    }
}

impl ProtectionDomain {
    /// Registers `count` buffers of `size` bytes each, zeroed, as one memory region.
    ///
    /// # Errors
    /// [`ErrorKind::LockedMemory`](crate::ErrorKind::LockedMemory) says what the limit is and how to raise it.
    ///
    /// # Example
    /// ```no_run
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// let pool = pd.pool(64, 4096)?; // one region of 256 KiB
    /// let mut buf = pool.take().expect("64 are free");
    /// buf.fill(0); // dropped, it is free again
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    pub fn pool(&self, count: usize, size: usize) -> Result<Pool> {
        self.pool_with(count, size, MemoryOptions::default())
    }

    /// As [`pool`](Self::pool), of memory obtained and registered as `options` say. Each buffer takes a multiple of 64 bytes of it.
    ///
    /// # Errors
    /// As [`pool`](Self::pool); [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for what the device cannot do, and what the
    /// kernel says where the memory is not to be had: no huge pages set aside, the caller's memory too short or not writable.
    ///
    /// # References
    /// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    pub fn pool_with(&self, count: usize, size: usize, options: MemoryOptions) -> Result<Pool> {
        Pool::register(self, count, size, options)
    }

    /// Registers a single buffer of `size` bytes, zeroed.
    ///
    /// # Errors
    /// As [`pool`](Self::pool).
    ///
    /// # Example
    /// ```no_run
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// let mut buf = pd.buf(64)?;
    /// buf[..5].copy_from_slice(b"hello");
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
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
        let free = (0..pieces).rev().collect();
        Ok(Self(Arc::new(Home::new(region, pieces, stride, piece_size, free))))
    }

    /// Takes a free buffer; `None` when all are taken or in flight.
    pub fn take(&self) -> Option<Buf> {
        let index = self.0.free().pop()?;
        Some(Arc::clone(&self.0).buf(index))
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
        Arc::new(Home::new(region, 1, 0, size, Vec::with_capacity(1))).buf(0)
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
///
/// It is as large as a pointer: moving one into a request and back moves nothing else.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// let mut buf = pd.buf(4096)?;
/// buf[..5].copy_from_slice(b"hello");
/// buf.set_len(5); // what a send sends
/// assert_eq!((&buf[..], buf.capacity()), (&b"hello"[..], 4096));
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
#[repr(transparent)]
pub struct Buf(NonNull<Piece>);

// SAFETY: a Buf is the one owner of its piece.
unsafe impl Send for Buf {}
// SAFETY: a shared Buf only reads.
unsafe impl Sync for Buf {}

impl Buf {
    /// What the address of [`into_raw`](Self::into_raw) is a multiple of.
    pub(crate) const ALIGN: usize = align_of::<Piece>();

    /// As a pointer, which owns the buffer.
    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<()> {
        ManuallyDrop::new(self).0.cast()
    }

    /// # Safety
    /// The pointer is from [`into_raw`](Self::into_raw), and is used once.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: NonNull<()>) -> Self {
        Self(raw.cast())
    }

    #[inline]
    fn piece(&self) -> &Piece {
        // SAFETY: the piece lives as long as its Home, of which the Buf has a count.
        unsafe { self.0.as_ref() }
    }

    /// How many bytes the buffer can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.piece().capacity as usize
    }

    /// Shows the first `len` bytes from now on, at most [`capacity`](Self::capacity). The bytes keep their values.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        let piece = self.piece();
        piece.len.set(u32::try_from(len).unwrap_or(u32::MAX).min(piece.capacity));
    }

    /// What a send posts: the bytes shown.
    #[inline]
    pub(crate) fn shown(&self) -> ibv_sge {
        let piece = self.piece();
        ibv_sge { addr: piece.address(), length: piece.len.get(), lkey: piece.lkey }
    }

    /// What a receive posts: all of the buffer.
    #[inline]
    pub(crate) fn whole(&self) -> ibv_sge {
        let piece = self.piece();
        ibv_sge { addr: piece.address(), length: piece.capacity, lkey: piece.lkey }
    }

    #[inline]
    pub(crate) fn domain(&self) -> DomainKey {
        self.piece().domain
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        // SAFETY: the Buf has a count of its Home.
        unsafe { &*self.piece().home.get() }.region.pd()
    }
}

impl Piece {
    #[inline]
    fn address(&self) -> u64 {
        // The device is outside the program: exposing says that the memory may be reached through the number alone.
        self.start.as_ptr().expose_provenance() as u64
    }

    /// Back to the list, and the count with it.
    ///
    /// # Safety
    /// The one Buf of the piece goes.
    #[inline(never)]
    unsafe fn give_back(this: NonNull<Self>) {
        // SAFETY: the caller's promise; the count was taken in `Home::buf`. No reference to the piece is alive when the Home may end.
        let (home, index) = unsafe { (Arc::from_raw(this.as_ref().home.get()), this.as_ref().index) };
        home.free().push(index);
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let piece = self.piece();
        // SAFETY: the piece is initialised (zeroed at registration), `len` is at most its size, and while the Buf is owned
        // neither a device nor another owner writes to it.
        unsafe { std::slice::from_raw_parts(piece.start.as_ptr(), piece.len.get() as usize) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let piece = self.piece();
        // SAFETY: as `deref`; the borrow is exclusive, and nobody reads the piece either.
        unsafe { std::slice::from_raw_parts_mut(piece.start.as_ptr(), piece.len.get() as usize) }
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this is the one Buf of the piece, and it goes.
        unsafe { Piece::give_back(self.0) }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf").field("len", &self.len()).field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}
