//! Memory that peers can read, write or update atomically at any time.

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
use crate::error::{Error, ErrorKind, Result};
use crate::pd::ProtectionDomain;

/// Memory that peers can access at any time, as registered. Clones refer to the same region.
///
/// There are never references to the memory. Bytes are copied in and out with bounds checks, and
/// aligned 8-byte words are accessed atomically. A copy during a peer's write returns a mixture of
/// old and new bytes, so the peers need a protocol to agree when data is complete.
///
/// To use it as local memory of requests, let a queue pair [`hold`](crate::QueuePair::hold) it.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// use ibverbs::AccessFlags;
/// let region = pd.shared(4096, AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE)?;
/// region.write(0, b"hello")?;
/// let for_the_peer = region.remote();
/// let second_half = region.slice(2048..4096).expect("within the region");
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_reg_mr")]
#[derive(Clone)]
pub struct SharedRegion {
    region: Arc<Region>,
    /// Offset of the first byte in the region.
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl ProtectionDomain {
    /// Registers `len` zeroed bytes that peers can access with the rights in `access`.
    ///
    /// Local write access is always included.
    ///
    /// # Errors
    /// Those of [`pool`](Self::pool).
    ///
    /// # Example
    /// ```no_run
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// use ibverbs::AccessFlags;
    /// let table = pd.shared(1 << 20, AccessFlags::REMOTE_READ)?;
    /// println!("peers can read {:?}", table.remote());
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_reg_mr")]
    pub fn shared(&self, len: usize, access: AccessFlags) -> Result<SharedRegion> {
        self.shared_with(len, access, MemoryOptions::default())
    }

    /// Like [`shared`](Self::shared), with options for allocating and registering the memory.
    ///
    /// # Errors
    /// Those of [`pool_with`](Self::pool_with), and [`ErrorKind::InvalidInput`] if the address of
    /// caller memory or `len` is not a multiple of 8.
    #[doc(alias = "ibv_reg_mr")]
    pub fn shared_with(
        &self,
        len: usize,
        access: AccessFlags,
        options: MemoryOptions,
    ) -> Result<SharedRegion> {
        let access = access | AccessFlags::LOCAL_WRITE;
        let region = Region::register_with(self, len, access, options, |memory| {
            if memory.is_whole_words() {
                return Ok(());
            }
            Err(Error::new(
                ErrorKind::InvalidInput,
                "register a shared region",
                format!("{len} bytes of caller memory are not aligned to 8-byte words"),
            )
            .with_help("use an address and a length that are multiples of 8 bytes"))
        })?;
        Ok(SharedRegion::from_region(region))
    }
}

impl SharedRegion {
    pub(crate) fn from_region(region: Region) -> Self {
        let len = region.len();
        Self {
            region: Arc::new(region),
            start: 0,
            len,
        }
    }

    /// Registers the same memory in another protection domain, usually of another device, so that
    /// a transfer can use several devices. Each region has its own keys and access rights, and the
    /// memory is freed after the last of them was deregistered.
    ///
    /// The returned region refers to the same bytes as this one. Its memory options are those of
    /// this region. Local write access is always included.
    ///
    /// # Errors
    /// Those of [`shared`](ProtectionDomain::shared), and [`ErrorKind::Unsupported`] if peers may
    /// read one of the regions on a device that may read memory after it was deregistered, as
    /// Soft-iWARP does.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{AccessFlags, Device};
    /// let first = Device::by_name("mlx5_0")?.open()?.alloc_pd()?;
    /// let second = Device::by_name("mlx5_1")?.open()?.alloc_pd()?;
    /// let region = first.shared(1 << 20, AccessFlags::REMOTE_WRITE)?;
    /// let same_memory = region.register_in(&second, AccessFlags::REMOTE_WRITE)?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_reg_mr")]
    pub fn register_in(&self, pd: &ProtectionDomain, access: AccessFlags) -> Result<Self> {
        let region = self
            .region
            .register_in(pd, access | AccessFlags::LOCAL_WRITE)?;
        Ok(Self {
            region: Arc::new(region),
            start: self.start,
            len: self.len,
        })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if this is an empty slice.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the same memory restricted to a range of bytes, or `None` if the range is out of
    /// bounds. Both refer to the same region.
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

    /// Returns the memory as a peer addresses it.
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory {
            addr: self.address(),
            len: self.len as u64,
            rkey: self.region.rkey(),
        }
    }

    /// Returns the access rights of the registration.
    pub fn access(&self) -> AccessFlags {
        self.region.access()
    }

    /// Copies bytes starting at `offset` out of the region.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the range is out of bounds.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        let offset = self.checked_offset(offset, into.len())?;
        // SAFETY: the range is in bounds (`checked_offset`). The region is alive, and there is no
        // reference to its memory.
        unsafe { copy_out(self.region.start().as_ptr().add(offset), into) };
        fence(Ordering::Acquire);
        Ok(())
    }

    /// Copies bytes into the region, starting at `offset`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the range is out of bounds.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        let offset = self.checked_offset(offset, from.len())?;
        fence(Ordering::Release);
        // SAFETY: as in `read`.
        unsafe { copy_in(self.region.start().as_ptr().add(offset), from) };
        Ok(())
    }

    /// Reads the 8 bytes at `offset` atomically.
    ///
    /// The access is atomic with respect to the CPUs of this host. It is atomic with respect to the
    /// device only if the device's `atomic_cap` is `GLOB`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the range is out of bounds, if `offset` (counted from the
    /// start of the whole region) is not a multiple of 8, or if `ordering` is not valid for a load.
    #[inline]
    pub fn load(&self, offset: usize, ordering: Ordering) -> Result<u64> {
        let word = self.atomic(offset)?;
        match ordering {
            Ordering::Relaxed | Ordering::Acquire | Ordering::SeqCst => Ok(word.load(ordering)),
            _ => Err(bad_load(ordering)),
        }
    }

    /// Writes the 8 bytes at `offset` atomically.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), with the orderings that are valid for a store.
    #[inline]
    pub fn store(&self, offset: usize, value: u64, ordering: Ordering) -> Result<()> {
        let word = self.atomic(offset)?;
        match ordering {
            Ordering::Relaxed | Ordering::Release | Ordering::SeqCst => {
                word.store(value, ordering);
            }
            _ => {
                return Err(invalid(format!(
                    "ordering {ordering:?} of a store; expected Relaxed, Release or SeqCst"
                )));
            }
        }
        Ok(())
    }

    /// Replaces the 8 bytes at `offset` with `new` if they equal `current`. Returns the previous
    /// value: as `Ok` if it was replaced, as `Err` if it differed.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), except for the ordering.
    ///
    /// # Example
    /// This example takes a lock that peers take with RDMA atomics. It requires a device whose
    /// atomics are atomic with respect to the CPU:
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
    ) -> Result<Result<u64, u64>> {
        self.atomic(offset)
            .map(|word| word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire))
    }

    #[inline]
    fn atomic(&self, offset: usize) -> Result<&AtomicU64> {
        let at = self.checked_offset(offset, 8)?;
        if at % 8 != 0 {
            return Err(misaligned(at));
        }
        // SAFETY: the 8 bytes are in bounds and aligned, because the region starts at a multiple of
        // 8, and live as long as self. All accesses of Rust code are atomic accesses to words.
        // Copies (see `copy`) and the accesses of devices and providers are outside the memory
        // model (see the documentation of the crate).
        Ok(unsafe { AtomicU64::from_ptr(self.region.start().as_ptr().add(at).cast()) })
    }

    /// Returns the offset in the whole region, after a bounds check.
    #[inline]
    fn checked_offset(&self, offset: usize, len: usize) -> Result<usize> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(out_of_bounds(offset, len, self.len));
        }
        Ok(self.start + offset)
    }

    fn address(&self) -> u64 {
        self.region.base() + self.start as u64
    }

    /// Returns the entry for the whole memory, up to the maximum length of an entry.
    pub(crate) fn sge(&self) -> ibv_sge {
        let length = u32::try_from(self.len).unwrap_or(u32::MAX);
        ibv_sge {
            addr: self.address(),
            length,
            lkey: self.region.lkey(),
        }
    }

    /// Returns the protection domain in which the region is registered.
    pub fn pd(&self) -> &ProtectionDomain {
        self.region.pd()
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns the region if this is the last reference to it.
    pub(crate) fn into_region(self) -> Result<Region, Self> {
        let Self { region, start, len } = self;
        Arc::try_unwrap(region).map_err(|region| Self { region, start, len })
    }
}

#[cold]
fn invalid(what: String) -> Error {
    Error::new(ErrorKind::InvalidInput, "access a shared region", what)
}

#[cold]
fn out_of_bounds(offset: usize, len: usize, region: usize) -> Error {
    invalid(format!(
        "{len} bytes at offset {offset} are out of bounds; the region has {region} bytes"
    ))
}

#[cold]
fn misaligned(offset: usize) -> Error {
    invalid(format!("offset {offset} is not a multiple of 8"))
}

#[cold]
fn bad_load(ordering: Ordering) -> Error {
    invalid(format!(
        "ordering {ordering:?} of a load; expected Relaxed, Acquire or SeqCst"
    ))
}

impl fmt::Debug for SharedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRegion")
            .field("len", &self.len())
            .field("access", &self.access())
            .finish()
    }
}
