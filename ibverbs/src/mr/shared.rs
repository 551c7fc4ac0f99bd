//! Memory that peers may read, write or do atomics on at any time.

#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rdma_sys::ibv_sge;

use super::access::AccessFlags;
use super::region::Region;
use super::remote::RemoteMemory;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::pd::ProtectionDomain;

/// Memory that peers may access at any time, as its registration says. Clones share it.
///
/// There are no references to it, ever: bytes are copied in and out, bounds-checked, and aligned numbers of 8 bytes are read and changed
/// atomically. What a copy sees while a peer writes is some mixture of old and new bytes; agree with the peer on when to look.
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
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[derive(Clone)]
pub struct SharedRegion(Arc<Region>);

impl ProtectionDomain {
    /// Registers `len` bytes, zeroed, that peers may access as `access` says.
    ///
    /// # Errors
    /// As [`pool`](Self::pool).
    pub fn shared(&self, len: usize, access: AccessFlags) -> Result<SharedRegion> {
        Region::register(self, len, access | AccessFlags::LOCAL_WRITE).map(|region| SharedRegion(Arc::new(region)))
    }
}

impl SharedRegion {
    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a region has at least one byte")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The whole region as a peer names it.
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory { addr: self.address(), len: self.0.len() as u64, rkey: self.0.rkey() }
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when they do not lie within the region.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        let start = self.at(offset, into.len())?;
        for (index, byte) in into.iter_mut().enumerate() {
            // SAFETY: the range lies within the region (see `at`); a volatile read of a byte that a peer may change meanwhile gives some byte.
            *byte = unsafe { start.add(index).read_volatile() };
        }
        Ok(())
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when they do not lie within the region.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        let start = self.at(offset, from.len())?;
        for (index, byte) in from.iter().enumerate() {
            // SAFETY: the range lies within the region (see `at`); no reference to it exists.
            unsafe { start.add(index).write_volatile(*byte) };
        }
        Ok(())
    }

    /// The 8 bytes at `offset` as an atomic number: whole values, never halves of two.
    ///
    /// It is atomic towards this host's processors; towards the device as far as the device's atomics are (`atomic_cap`).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when they do not lie within the region, or `offset` is no multiple of 8.
    pub fn load(&self, offset: usize, ordering: Ordering) -> Result<u64> {
        self.atomic(offset).map(|number| number.load(ordering))
    }

    /// Replaces the 8 bytes at `offset`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn store(&self, offset: usize, value: u64, ordering: Ordering) -> Result<()> {
        self.atomic(offset).map(|number| number.store(value, ordering))
    }

    /// Replaces the 8 bytes at `offset` by `new` if they equal `current`; returns what was there, as `Err` when it differed.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn compare_exchange(&self, offset: usize, current: u64, new: u64) -> Result<std::result::Result<u64, u64>> {
        self.atomic(offset).map(|number| number.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire))
    }

    fn atomic(&self, offset: usize) -> Result<&AtomicU64> {
        let start = self.at(offset, 8)?;
        if offset % 8 != 0 {
            return Err(self.out_of(offset, 8).with_hint("an atomic number lies at a multiple of 8"));
        }
        // SAFETY: 8 bytes within the region, aligned (the region begins at a page), alive while self is; all accesses of this
        // host to it are atomic or volatile, and a device's accesses are outside the memory model (see the crate's documentation).
        Ok(unsafe { AtomicU64::from_ptr(start.cast()) })
    }

    fn at(&self, offset: usize, len: usize) -> Result<*mut u8> {
        if offset.checked_add(len).is_none_or(|end| end > self.0.len()) {
            return Err(self.out_of(offset, len));
        }
        // SAFETY: the offset lies within the region, or one past its end for a length of 0.
        Ok(unsafe { self.0.start().as_ptr().add(offset) })
    }

    #[cold]
    fn out_of(&self, offset: usize, len: usize) -> Error {
        let what = format!("{len} bytes at {offset} of a region of {}", self.0.len());
        Error::new(ErrorKind::InvalidInput, "shared region", what)
    }

    fn address(&self) -> u64 {
        self.0.start().as_ptr().expose_provenance() as u64
    }

    /// Its local memory, as far as a scatter entry reaches.
    pub(super) fn whole(&self) -> ibv_sge {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        ibv_sge { addr: self.address(), length, lkey: self.0.lkey() }
    }

    pub(super) fn pd(&self) -> &ProtectionDomain {
        self.0.pd()
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for SharedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRegion").field("len", &self.len()).finish()
    }
}
