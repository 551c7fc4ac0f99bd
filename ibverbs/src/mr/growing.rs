//! A pool of buffers that registers more memory when all are taken.

use std::fmt;

use super::buf::Buf;
use super::pool::Pool;
use crate::error::Result;
use crate::pd::ProtectionDomain;

/// A pool of buffers of equal size that registers more of them when all are taken, up to a limit.
///
/// Buffers return to it when they are dropped, as to a [`Pool`]. It consists of pools, so a buffer
/// costs the same as one of a [`Pool`] unless memory is registered.
///
/// # Example
/// ```no_run
/// use ibverbs::mr::GrowingPool;
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// let mut pool = GrowingPool::new(&pd, 64, 4096, 1024); // 64 at a time, at most 1024
/// let buf = pool.take()?.expect("not all are taken");
/// drop(buf);
/// pool.shrink();
/// assert_eq!(pool.len(), 0);
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_reg_mr")]
pub struct GrowingPool {
    pd: ProtectionDomain,
    /// The pools and their numbers of buffers. The last one is the one to take from first.
    pools: Vec<(Pool, usize)>,
    step: usize,
    size: usize,
    max: usize,
}

impl GrowingPool {
    /// Creates a pool of at most `max` buffers of `size` bytes each, without any. It registers
    /// `step` buffers at a time.
    pub fn new(pd: &ProtectionDomain, step: usize, size: usize, max: usize) -> Self {
        Self {
            pd: pd.clone(),
            pools: Vec::new(),
            step,
            size,
            max,
        }
    }

    /// Takes a free buffer, and registers more if there is none. Returns `None` if the maximum
    /// number of buffers is taken or in flight.
    ///
    /// # Errors
    /// Those of [`ProtectionDomain::pool`] when it registers memory.
    pub fn take(&mut self) -> Result<Option<Buf>> {
        if let Some(buf) = self.pools.last().and_then(|(pool, _)| pool.take()) {
            return Ok(Some(buf));
        }
        let has_free = |(pool, _): &(Pool, usize)| pool.available() > 0;
        if let Some(index) = self.pools.iter().position(has_free) {
            let last = self.pools.len() - 1;
            self.pools.swap(index, last);
        } else {
            let count = self.step.min(self.max - self.len());
            if count == 0 {
                return Ok(None);
            }
            self.pools.push((self.pd.pool(count, self.size)?, count));
        }
        Ok(self.pools.last().and_then(|(pool, _)| pool.take()))
    }

    /// Deregisters the memory of those pools whose buffers are all free.
    pub fn shrink(&mut self) {
        self.pools.retain(|(pool, count)| pool.available() < *count);
    }

    /// Returns the number of registered buffers, free or not.
    pub fn len(&self) -> usize {
        self.pools.iter().map(|(_, count)| count).sum()
    }

    /// Returns `true` if no buffers are registered.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// Returns the number of registered buffers that are free.
    pub fn available(&self) -> usize {
        self.pools.iter().map(|(pool, _)| pool.available()).sum()
    }

    /// Returns the size of each buffer in bytes.
    pub fn buf_size(&self) -> usize {
        self.size
    }
}

impl fmt::Debug for GrowingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrowingPool")
            .field("buf_size", &self.size)
            .field("len", &self.len())
            .field("available", &self.available())
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}
