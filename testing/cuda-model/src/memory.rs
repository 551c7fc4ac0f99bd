//! The memory of the GPUs.
#![allow(unsafe_code, reason = "maps memory")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fs::{self, File};
use std::io::{Result, Seek, SeekFrom};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, io, ptr};

use crate::udmabuf;

/// Content of memory that was not written.
const UNWRITTEN: u8 = 0xa5;

/// Address of the first allocation. A process has no memory at such addresses.
const FIRST_ADDRESS: u64 = 0x00f0_0000_0000_0000;

/// The allocations by address.
pub(crate) struct Memory {
    pub(crate) next: u64,
    pub(crate) freed: u32,
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    /// The writes since the last synchronization, with their addresses.
    pub(crate) pending: Vec<(u64, Write)>,
    /// Number of times that each context is retained.
    pub(crate) contexts: BTreeMap<usize, usize>,
    /// Host memory that was registered: the ends of the ranges, by their starts.
    pub(crate) registered: BTreeMap<usize, usize>,
}

/// A write to a file, from a position on.
pub(crate) type Write = Box<dyn FnOnce(&File, u64) -> Result<()> + Send>;

/// Fills a part of a file. A slice of this length would take longer.
pub(crate) fn fill(file: &File, at: u64, byte: u8, len: usize) -> Result<()> {
    const CHUNK: usize = 16 << 10;
    for start in (0..len).step_by(CHUNK) {
        let count = CHUNK.min(len - start);
        file.write_all_at(&[byte; CHUNK][..count], at + start as u64)?;
    }
    Ok(())
}

pub(crate) struct Allocation {
    pub(crate) context: usize,
    /// The memory, from the beginning of the first page.
    pub(crate) file: File,
    /// Position of the first byte in the file.
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// The memory as kernels see it.
    pub(crate) mapping: Mapping,
    pub(crate) exported: Option<Exported>,
}

/// The exported part of an allocation.
pub(crate) struct Exported {
    pub(crate) at: u64,
    pub(crate) len: u64,
    /// The descriptor that the caller got, and its identity.
    descriptor: RawFd,
    identity: (u64, u64),
}

impl Allocation {
    /// Exports a part, from a position in the file on. Returns the descriptor.
    pub(crate) fn export(&mut self, at: u64, len: u64) -> Result<RawFd> {
        let descriptor = if env::var_os("CUDA_MODEL_FILES").is_none() {
            udmabuf::export(&self.file, at, len)?
        } else {
            let mut copy = self.file.try_clone()?;
            copy.seek(SeekFrom::Start(at))?;
            OwnedFd::from(copy)
        };
        let descriptor = descriptor.into_raw_fd();
        self.exported = Some(Exported {
            at,
            len,
            descriptor,
            identity: identity(descriptor)?,
        });
        Ok(descriptor)
    }
}

impl Exported {
    /// Returns `true` if the caller has not closed the descriptor.
    pub(crate) fn is_open(&self) -> bool {
        identity(self.descriptor).is_ok_and(|identity| identity == self.identity)
    }
}

/// Returns the identity of an open file: its file system and its number there.
fn identity(descriptor: RawFd) -> Result<(u64, u64)> {
    let file = fs::metadata(format!("/proc/self/fd/{descriptor}"))?;
    Ok((file.dev(), file.ino()))
}

static MEMORY: Mutex<Memory> = Mutex::new(Memory {
    next: FIRST_ADDRESS,
    freed: 0,
    allocations: BTreeMap::new(),
    pending: Vec::new(),
    contexts: BTreeMap::new(),
    registered: BTreeMap::new(),
});

/// A mapping of the pages of an allocation.
pub(crate) struct Mapping {
    address: *mut c_void,
    pub(crate) len: usize,
}

// SAFETY: the mapping belongs to the process, and the model does not access its memory itself.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the file, whose content is then [`UNWRITTEN`].
    pub(crate) fn new(file: &File, len: u64) -> Result<Self> {
        let len = usize::try_from(len).expect("a size in memory");
        fill(file, 0, UNWRITTEN, len)?;
        let (both, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let address =
            unsafe { libc::mmap(ptr::null_mut(), len, both, shared, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { address, len })
    }

    /// Returns the address of a byte.
    pub(crate) fn at(&self, offset: u64) -> *mut c_void {
        let offset = usize::try_from(offset).expect("a size in memory");
        self.address.wrapping_byte_add(offset)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is not used any more: kernels run only while they are launched.
        unsafe { libc::munmap(self.address, self.len) };
    }
}

pub(crate) fn memory() -> MutexGuard<'static, Memory> {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// Writes what was written since the last synchronization of a context.
    pub(crate) fn synchronize(&mut self) {
        for (address, write) in std::mem::take(&mut self.pending) {
            let found = self.find(address, 0);
            let (allocation, at) = found.expect("memory is freed after it is written");
            write(&allocation.file, at).expect("memory of the model");
        }
    }

    /// Returns the allocation that has these bytes, and their position in its file.
    pub(crate) fn find(&mut self, address: u64, len: u64) -> Option<(&mut Allocation, u64)> {
        let (start, allocation) = self.allocations.range_mut(..=address).next_back()?;
        let offset = address - start;
        let at = allocation.start + offset;
        (offset.checked_add(len)? <= allocation.len).then_some((allocation, at))
    }

    /// Returns the number of bytes in use, in whole pages.
    pub(crate) fn used(&self) -> u64 {
        let pages = |one: &Allocation| one.mapping.len as u64;
        self.allocations.values().map(pages).sum()
    }
}
