//! Memory that peers may read, write or do atomics on at any time.

#![allow(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rdma_sys::ibv_sge;

use super::access::AccessFlags;
use super::copy::{copy_in, copy_out};
use super::options::MemoryOptions;
use super::region::Region;
use super::remote::RemoteMemory;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::pd::ProtectionDomain;

/// Memory that peers may access at any time, as its registration says. Clones share it.
///
/// There are no references to it, ever: bytes are copied in and out, bounds-checked, and aligned
/// numbers of 8 bytes are read and changed atomically. What a copy sees while a peer writes is some
/// mixture of old and new bytes; agree with the peer on when to look.
///
/// To use it as local memory of requests, let a queue pair [`hold`](crate::QueuePair::hold) it.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// use ibverbs::AccessFlags;
/// let region = pd.shared(4096, AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE)?;
/// region.write(0, b"hello")?;
/// let told_to_the_peer = region.remote();
/// let second_half = region.slice(2048..4096).expect("within");
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
#[derive(Clone)]
pub struct SharedRegion {
    region: Arc<Region>,
    /// Where it begins in the region.
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl ProtectionDomain {
    /// Registers `len` bytes, zeroed, that peers may access as `access` says. Local write access is
    /// always part of it.
    ///
    /// # Errors
    /// As [`pool`](Self::pool).
    ///
    /// # Example
    /// ```no_run
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// use ibverbs::AccessFlags;
    /// let table = pd.shared(1 << 20, AccessFlags::REMOTE_READ)?;
    /// println!("peers may read {:?}", table.remote());
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    pub fn shared(&self, len: usize, access: AccessFlags) -> Result<SharedRegion> {
        self.shared_with(len, access, MemoryOptions::default())
    }

    /// As [`shared`](Self::shared), of memory obtained and registered as `options` say.
    ///
    /// # Errors
    /// As [`pool_with`](Self::pool_with); the caller's memory must begin at a multiple of 8 and
    /// `len` be one.
    ///
    /// # References
    /// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    pub fn shared_with(
        &self,
        len: usize,
        access: AccessFlags,
        options: MemoryOptions,
    ) -> Result<SharedRegion> {
        let region = Region::register(self, len, access | AccessFlags::LOCAL_WRITE, options)?;
        if !region.is_words() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "shared region",
                format!("{len} bytes of the caller's"),
            )
            .with_hint("it begins at a multiple of 8 bytes and has a multiple of 8 bytes"));
        }
        Ok(SharedRegion::of(region))
    }
}

impl SharedRegion {
    pub(crate) fn of(region: Region) -> Self {
        let len = region.len();
        Self {
            region: Arc::new(region),
            start: 0,
            len,
        }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is a slice of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The same memory, cut to this range of bytes; `None` when the range does not lie within. It
    /// shares the region.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.len {
            return None;
        }
        Some(Self {
            region: Arc::clone(&self.region),
            start: self.start + range.start,
            len: range.end - range.start,
        })
    }

    /// All of it as a peer names it.
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory {
            addr: self.address(),
            len: self.len as u64,
            rkey: self.region.rkey(),
        }
    }

    /// What it was registered for.
    pub fn access(&self) -> AccessFlags {
        self.region.access()
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when they do not lie within the region.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        let offset = self.at(offset, into.len())?;
        // SAFETY: the range lies within the region (see `at`), which is alive, made of words, and
        // accessed by words only.
        unsafe { copy_out(self.region.start().as_ptr(), offset, into) };
        fence(Ordering::Acquire);
        Ok(())
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when they do not lie within the region.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        let offset = self.at(offset, from.len())?;
        fence(Ordering::Release);
        // SAFETY: as in `read`.
        unsafe { copy_in(self.region.start().as_ptr(), offset, from) };
        Ok(())
    }

    /// The 8 bytes at `offset` as an atomic number: whole values, never halves of two.
    ///
    /// It is atomic towards this host's processors; towards the device as far as the device's
    /// atomics are (`atomic_cap`).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when they do not lie within the region, or `offset` is no
    /// multiple of 8 (counted from the start of the whole region), and for an ordering of
    /// stores.
    pub fn load(&self, offset: usize, ordering: Ordering) -> Result<u64> {
        let number = self.atomic(offset)?;
        match ordering {
            Ordering::Relaxed | Ordering::Acquire | Ordering::SeqCst => Ok(number.load(ordering)),
            _ => Err(self
                .out_of(offset, 8)
                .with_hint("a load is Relaxed, Acquire or SeqCst")),
        }
    }

    /// Replaces the 8 bytes at `offset`.
    ///
    /// # Errors
    /// As [`load`](Self::load); for an ordering of loads.
    pub fn store(&self, offset: usize, value: u64, ordering: Ordering) -> Result<()> {
        let number = self.atomic(offset)?;
        match ordering {
            Ordering::Relaxed | Ordering::Release | Ordering::SeqCst => {
                number.store(value, ordering);
            }
            _ => {
                return Err(self
                    .out_of(offset, 8)
                    .with_hint("a store is Relaxed, Release or SeqCst"));
            }
        }
        Ok(())
    }

    /// Replaces the 8 bytes at `offset` by `new` if they equal `current`; returns what was there,
    /// as `Err` when it differed.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    ///
    /// # Example
    /// A lock that peers take by the device's atomics, where those are atomic towards the processor
    /// too:
    /// ```no_run
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// use ibverbs::AccessFlags;
    /// let lock = pd.shared(8, AccessFlags::REMOTE_ATOMIC)?;
    /// let is_ours = lock.compare_exchange(0, 0, 1)?.is_ok();
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    pub fn compare_exchange(
        &self,
        offset: usize,
        current: u64,
        new: u64,
    ) -> Result<std::result::Result<u64, u64>> {
        self.atomic(offset).map(|number| {
            number.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
        })
    }

    fn atomic(&self, offset: usize) -> Result<&AtomicU64> {
        let at = self.at(offset, 8)?;
        if at % 8 != 0 {
            return Err(self
                .out_of(offset, 8)
                .with_hint("an atomic number lies at a multiple of 8"));
        }
        // SAFETY: 8 bytes within the region, aligned (the region begins at a multiple of 8), alive
        // while self is; all accesses of this host to it are atomic and by words, and a
        // device's accesses are outside the memory model (see the crate's documentation).
        Ok(unsafe { AtomicU64::from_ptr(self.region.start().as_ptr().add(at).cast()) })
    }

    /// The place in the whole region.
    fn at(&self, offset: usize, len: usize) -> Result<usize> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(self.out_of(offset, len));
        }
        Ok(self.start + offset)
    }

    #[cold]
    fn out_of(&self, offset: usize, len: usize) -> Error {
        let what = format!("{len} bytes at {offset} of a region of {}", self.len);
        Error::new(ErrorKind::InvalidInput, "shared region", what)
    }

    fn address(&self) -> u64 {
        self.region.base() + self.start as u64
    }

    /// Its local memory, as far as a scatter entry reaches.
    pub(crate) fn whole(&self) -> ibv_sge {
        let length = u32::try_from(self.len).unwrap_or(u32::MAX);
        ibv_sge {
            addr: self.address(),
            length,
            lkey: self.region.lkey(),
        }
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        self.region.pd()
    }

    /// Whether both are of one region, perhaps different slices of it.
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.region, &other.region)
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The region itself, if this is the last share of it.
    pub(crate) fn into_region(self) -> std::result::Result<Region, Self> {
        let Self { region, start, len } = self;
        Arc::try_unwrap(region).map_err(|region| Self { region, start, len })
    }
}

impl fmt::Debug for SharedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRegion")
            .field("len", &self.len())
            .field("access", &self.access())
            .finish()
    }
}
