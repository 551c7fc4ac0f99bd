//! Pools: one registered region, cut into buffers of equal size.

use std::fmt;
use std::sync::Arc;

use super::access::AccessFlags;
use super::buf::Buf;
use super::options::MemoryOptions;
use super::pool_inner::Home;
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
///
/// # References
/// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
#[derive(Clone)]
pub struct Pool(Arc<Home>);

impl ProtectionDomain {
    /// Registers `count` buffers of `size` bytes each, zeroed, as one memory region.
    ///
    /// # Errors
    /// [`ErrorKind::LockedMemory`](crate::ErrorKind::LockedMemory) says what the limit is and how
    /// to raise it.
    ///
    /// # Example
    /// ```no_run
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// let pool = pd.pool(64, 4096)?; // one region of 256 KiB
    /// let mut buf = pool.take().expect("64 are free");
    /// buf.fill(0); // dropped, it is free again
    ///
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    pub fn pool(&self, count: usize, size: usize) -> Result<Pool> {
        self.pool_with(count, size, MemoryOptions::default())
    }

    /// As [`pool`](Self::pool), of memory obtained and registered as `options` say. Each buffer
    /// takes a multiple of 64 bytes of it.
    ///
    /// # Errors
    /// As [`pool`](Self::pool); [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for what
    /// the device cannot do, and what the kernel says where the memory is not to be had: no
    /// huge pages set aside, the caller's memory too short or not writable.
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
    fn register(
        pd: &ProtectionDomain,
        count: usize,
        size: usize,
        options: MemoryOptions,
    ) -> Result<Self> {
        options.by_address("pool")?;
        let refused = || {
            Error::new(
                ErrorKind::InvalidInput,
                "pool",
                format!("{count} buffers of {size} bytes"),
            )
            .with_hint("a pool has 1 to 2^32-1 buffers of 1 to 2^32-1 bytes")
        };
        let (Ok(pieces), Ok(piece_size @ 1..)) = (u32::try_from(count), u32::try_from(size)) else {
            return Err(refused());
        };
        let stride = size.next_multiple_of(ALIGN);
        let total = stride
            .checked_mul(count)
            .filter(|&total| total > 0)
            .ok_or_else(refused)?;
        let region = Region::register(pd, total, AccessFlags::LOCAL_WRITE, options)?;
        let free = (0..pieces).rev().collect();
        Ok(Self(Arc::new(Home::new(
            region, pieces, stride, piece_size, free,
        ))))
    }

    /// Takes a free buffer; `None` when all are taken or in flight.
    pub fn take(&self) -> Option<Buf> {
        let index = self.0.free().pop()?;
        Some(Buf::of(Arc::clone(&self.0), index))
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
    pub(crate) fn of_whole(region: Region) -> Buf {
        let size = u32::try_from(region.len()).unwrap_or(u32::MAX);
        Buf::of(
            Arc::new(Home::new(region, 1, 0, size, Vec::with_capacity(1))),
            0,
        )
    }

    fn no_piece() -> Error {
        Error::new(ErrorKind::QueueFull, "pool", "no buffer is free")
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("buf_size", &self.0.size)
            .field("available", &self.available())
            .finish()
    }
}
