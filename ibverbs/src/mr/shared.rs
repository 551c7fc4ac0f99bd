//! Memory that peers may read, write or do atomics on at any time.

#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rdma_sys::ibv_sge;

use super::access::AccessFlags;
use super::region::Region;
use super::remote::RemoteMemory;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::pd::ProtectionDomain;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

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
        self.check(offset, into.len())?;
        let mut done = 0;
        while done < into.len() {
            let (word, within, count) = self.word_at(offset + done, into.len() - done);
            let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            into[done..done + count].copy_from_slice(&bytes[within..within + count]);
            done += count;
        }
        fence(Ordering::Acquire);
        Ok(())
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when they do not lie within the region.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.check(offset, from.len())?;
        fence(Ordering::Release);
        let mut done = 0;
        while done < from.len() {
            let (word, within, count) = self.word_at(offset + done, from.len() - done);
            let piece = &from[done..done + count];
            if let Ok(whole) = piece.try_into() {
                word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
            } else {
                // Part of a word: whoever changes its other bytes meanwhile must not lose them.
                let merge = |old: u64| {
                    let mut bytes = old.to_ne_bytes();
                    bytes[within..within + count].copy_from_slice(piece);
                    Some(u64::from_ne_bytes(bytes))
                };
                let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, merge);
            }
            done += count;
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
        self.check(offset, 8)?;
        if offset % WORD != 0 {
            return Err(self.out_of(offset, 8).with_hint("an atomic number lies at a multiple of 8"));
        }
        Ok(self.word_at(offset, WORD).0)
    }

    fn check(&self, offset: usize, len: usize) -> Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.0.len()) {
            return Err(self.out_of(offset, len));
        }
        Ok(())
    }

    /// The word that has the byte at `offset`, the byte's place in it, and how many of the next `len` bytes it has.
    ///
    /// All accesses of this host are atomic and by whole words, copies too: threads may share a region, and accesses of different
    /// sizes, or one atomic and one not, may not race.
    #[inline]
    fn word_at(&self, offset: usize, len: usize) -> (&AtomicU64, usize, usize) {
        let within = offset % WORD;
        debug_assert!(offset < self.0.len());
        // SAFETY: `check` came before: the byte lies within the region, which begins at a page and whose allocation is a multiple of words
        // long; alive while self is. All accesses of this host go through here, and a device's are outside the memory model (see the
        // crate's documentation).
        let word = unsafe { AtomicU64::from_ptr(self.0.start().as_ptr().add(offset - within).cast()) };
        (word, within, len.min(WORD - within))
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
