//! Memory of other devices: dma-bufs, which the model maps so that its adapter can access them.
//!
//! Some exporters, such as the driver of NVIDIA, do not let the processor map their memory. A
//! program then passes functions to the model that copy it ([`announce`]).
#![allow(unsafe_code, reason = "maps files of the program")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};

use crate::errno::{Errno, Result};
use crate::memory::{Copier, PAGE, Pinned};
use crate::syscall;

/// Type of the file system of dma-bufs (`DMA_BUF_MAGIC`).
const DMA_BUF_MAGIC: i64 = 0x444d_4142;

/// The dma-bufs whose memory is copied, by the number of their inode, which is not used again.
static ANNOUNCED: Mutex<BTreeMap<u64, Announced>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy)]
struct Announced {
    address: u64,
    copier: Copier,
}

/// Makes the model copy the memory of a dma-buf with functions of the program. `address` is the
/// first argument of these functions for its first byte.
pub(crate) fn announce(fd: RawFd, address: u64, copier: Copier) -> Result<()> {
    let inode = inode(fd)?;
    let mut announced = ANNOUNCED.lock().unwrap_or_else(PoisonError::into_inner);
    announced.insert(inode, Announced { address, copier });
    Ok(())
}

fn announced(fd: RawFd) -> Result<Option<Announced>> {
    let inode = inode(fd)?;
    let announced = ANNOUNCED.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(announced.get(&inode).copied())
}

fn inode(fd: RawFd) -> Result<u64> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills the structure, or fails.
    if unsafe { syscall::fstat(fd, status.as_mut_ptr()) } != 0 {
        return Err(Errno::last());
    }
    // SAFETY: the call succeeded.
    Ok(unsafe { status.assume_init() }.st_ino)
}

/// The access to a part of a dma-buf. The file can be closed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DmabufMapping {
    /// The processor accesses it. The mapping keeps the memory alive.
    Mapped { start: usize, length: usize },
    /// It is copied. The program keeps the memory alive.
    Copied,
}

impl DmabufMapping {
    /// Maps `length` bytes at `offset` of a dma-buf, and returns the memory for the adapter.
    ///
    /// Fails like `dma_buf_get` with `EBADF` if the descriptor is closed, and with `EINVAL` if it
    /// is not a dma-buf or if the bytes are not inside.
    pub(crate) fn new(fd: RawFd, offset: u64, length: u64) -> Result<(Self, Pinned)> {
        let mut status = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: the kernel fills the structure, or fails.
        if unsafe { libc::fstatfs(fd, status.as_mut_ptr()) } != 0 {
            return Err(Errno::last());
        }
        // SAFETY: the call succeeded.
        if unsafe { status.assume_init() }.f_type != DMA_BUF_MAGIC {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the call has no pointers. The position of a dma-buf has no other use.
        let size = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
        let size = u64::try_from(size).map_err(|_| Errno::last())?;
        let end = offset.checked_add(length).ok_or(Errno::EINVAL)?;
        if length == 0 || end > size {
            return Err(Errno::EINVAL);
        }
        if let Some(Announced { address, copier }) = announced(fd)? {
            let memory = Pinned::of_device(address + offset, length, copier);
            return Ok((Self::Copied, memory));
        }
        let first = offset / PAGE * PAGE;
        let bytes = usize::try_from(end - first).map_err(|_| Errno::EINVAL)?;
        let position = libc::off_t::try_from(first).map_err(|_| Errno::EINVAL)?;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe {
            syscall::mmap(
                std::ptr::null_mut(),
                bytes,
                both,
                libc::MAP_SHARED,
                fd,
                position,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let whole = Pinned::of_model(start, bytes as u64);
        let memory = whole.part(offset - first, length).ok_or(Errno::EINVAL)?;
        let mapping = Self::Mapped {
            start: start as usize,
            length: bytes,
        };
        Ok((mapping, memory))
    }

    /// Removes the mapping. The caller holds the lock of the model and has removed every key of the
    /// memory, so that the adapter does not access it any more.
    pub(crate) fn unmap(self) {
        if let Self::Mapped { start, length } = self {
            // SAFETY: the model made this mapping, and nothing uses it (see above).
            unsafe { libc::munmap(start as *mut c_void, length) };
        }
    }
}
