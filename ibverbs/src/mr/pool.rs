//! Pools of buffers of equal size in one registered region.

use std::fmt;
use std::sync::Arc;

use super::access::AccessFlags;
use super::buf::Buf;
use super::options::MemoryOptions;
use super::region::Region;
use super::shared_pool::SharedPool;
use crate::error::{Error, ErrorKind, Result};
use crate::pd::ProtectionDomain;

/// Alignment of buffers, so that two of them never share a cache line.
const ALIGN: usize = 64;

/// A pool of buffers of equal size in one registered region.
///
/// Dropping a buffer returns it to its pool. Buffers keep the region alive after the pool was
/// dropped.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// let pool = pd.pool(16, 4096)?;
/// let mut buf = pool.take().expect("16 are free");
/// buf[..5].copy_from_slice(b"hello");
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_reg_mr")]
#[derive(Clone)]
pub struct Pool(Arc<SharedPool>);

impl ProtectionDomain {
    /// Registers `count` zeroed buffers of `size` bytes each as one memory region.
    ///
    /// # Errors
    /// - [`ErrorKind::LockedMemory`](crate::ErrorKind::LockedMemory): the memory could not be
    ///   pinned, usually because of the limit on locked memory. The help text shows the limit and
    ///   how to raise it.
    /// - [`ErrorKind::InvalidInput`]: `count` or `size` is 0 or too large.
    ///
    /// # Example
    /// ```no_run
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// let pool = pd.pool(64, 4096)?; // one region of 256 KiB
    /// let mut buf = pool.take().expect("64 are free");
    /// buf.fill(0); // dropping it returns it to the pool
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_reg_mr")]
    pub fn pool(&self, count: usize, size: usize) -> Result<Pool> {
        self.pool_with(count, size, MemoryOptions::default())
    }

    /// Like [`pool`](Self::pool), with options for allocating and registering the memory. Each
    /// buffer occupies a multiple of 64 bytes.
    ///
    /// # Errors
    /// Those of [`pool`](Self::pool), and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported)
    /// if the device does not support an option. Fails if the memory cannot be allocated: no huge
    /// pages are reserved, or the caller's memory is too short or not writable.
    #[doc(alias = "ibv_reg_mr")]
    pub fn pool_with(&self, count: usize, size: usize, options: MemoryOptions) -> Result<Pool> {
        Pool::register(self, count, size, options)
    }

    /// Registers a single zeroed buffer of `size` bytes.
    ///
    /// # Errors
    /// Those of [`pool`](Self::pool).
    ///
    /// # Example
    /// ```no_run
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// let mut buf = pd.buf(64)?;
    /// buf[..5].copy_from_slice(b"hello");
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_reg_mr")]
    pub fn buf(&self, size: usize) -> Result<Buf> {
        self.pool(1, size)?.take().ok_or_else(Pool::no_free_buffer)
    }
}

impl Pool {
    fn register(
        pd: &ProtectionDomain,
        count: usize,
        size: usize,
        options: MemoryOptions,
    ) -> Result<Self> {
        options.reject_zero_based("pool")?;
        let invalid_input = || {
            Error::new(
                ErrorKind::InvalidInput,
                "pool",
                format!("{count} buffers of {size} bytes"),
            )
            .with_help("use 1 to 2^32-1 buffers of 1 to 2^32-1 bytes")
        };
        let (Ok(slots), Ok(slot_size @ 1..)) = (u32::try_from(count), u32::try_from(size)) else {
            return Err(invalid_input());
        };
        let stride = size.next_multiple_of(ALIGN);
        let total = stride
            .checked_mul(count)
            .filter(|&total| total > 0)
            .ok_or_else(invalid_input)?;
        let mut free = Vec::new();
        free.try_reserve_exact(count).map_err(|_| {
            let what = format!("not enough memory for {count} buffers");
            Error::new(ErrorKind::InvalidInput, "pool", what).with_help("use fewer buffers")
        })?;
        let region = Region::register(pd, total, AccessFlags::LOCAL_WRITE, options)?;
        free.extend((0..slots).rev());
        Ok(Self(Arc::new(SharedPool::new(
            region, slots, stride, slot_size, free,
        ))))
    }

    /// Takes a free buffer; `None` if all are taken or in flight.
    pub fn take(&self) -> Option<Buf> {
        let index = self.0.free().pop()?;
        Some(Buf::from_slot(Arc::clone(&self.0), index))
    }

    /// Returns the number of free buffers.
    pub fn available(&self) -> usize {
        self.0.free().len()
    }

    /// Returns the size of each buffer in bytes.
    pub fn buf_size(&self) -> usize {
        self.0.size as usize
    }

    /// Makes a region of at most 2^32-1 bytes a single buffer.
    pub(crate) fn whole_region(region: Region) -> Buf {
        let size = u32::try_from(region.len()).unwrap_or(u32::MAX);
        Buf::from_slot(
            Arc::new(SharedPool::new(region, 1, 0, size, Vec::with_capacity(1))),
            0,
        )
    }

    fn no_free_buffer() -> Error {
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
