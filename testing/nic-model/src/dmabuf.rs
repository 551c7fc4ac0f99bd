//! Memory of other devices: dma-bufs, which the model maps so that its adapter can access them.
#![allow(unsafe_code, reason = "maps files of the program")]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use crate::errno::{Errno, Result};
use crate::memory::{PAGE, Pinned};
use crate::syscall;

/// Type of the file system of dma-bufs (`DMA_BUF_MAGIC`).
const DMA_BUF_MAGIC: i64 = 0x444d_4142;

/// A mapping of a part of a dma-buf. The file can be closed, because the mapping keeps the memory
/// alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DmabufMapping {
    start: usize,
    length: usize,
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
        let mapping = Self {
            start: start as usize,
            length: bytes,
        };
        Ok((mapping, memory))
    }

    /// Removes the mapping. The caller holds the lock of the model and has removed every key of the
    /// memory, so that the adapter does not access it any more.
    pub(crate) fn unmap(self) {
        // SAFETY: the model made this mapping, and nothing uses it (see above).
        unsafe { libc::munmap(self.start as *mut c_void, self.length) };
    }
}
