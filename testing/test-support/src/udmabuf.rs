//! dma-bufs of host memory, from `/dev/udmabuf`. They stand for the memory of another device.

#![allow(unsafe_code, reason = "system calls")]

use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// Size of a page, in bytes.
pub const PAGE: u64 = 4096;

/// The device that makes dma-bufs.
pub const DEVICE: &str = "/dev/udmabuf";

/// `UDMABUF_CREATE`: `_IOW('u', 0x42, struct udmabuf_create)`.
const CREATE: libc::c_ulong = 0x4018_7542;
/// `UDMABUF_FLAGS_CLOEXEC`.
const CLOEXEC: u32 = 1;

/// `struct udmabuf_create`.
#[repr(C)]
struct Create {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

/// Returns `true` if this kernel makes dma-bufs of host memory.
pub fn is_available() -> bool {
    Path::new(DEVICE).exists()
}

/// Creates memory whose pages can be exported. `len` is a multiple of [`PAGE`].
///
/// # Errors
/// Returns the error of the kernel.
pub fn memory(len: u64) -> Result<File> {
    let flags = libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC;
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"udmabuf".as_ptr(), flags) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the descriptor is new.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len)?;
    // SAFETY: the call has no pointers.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } != 0 {
        return Err(Error::last_os_error());
    }
    Ok(file)
}

/// Exports pages of [`memory`] as a dma-buf.
///
/// # Errors
/// Returns the error of the kernel, for example if it has no `/dev/udmabuf`.
///
/// # Panics
/// Never panics: a descriptor is not negative.
pub fn export(memory: &File, offset: u64, len: u64) -> Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
    let create = Create {
        memfd: u32::try_from(memory.as_raw_fd()).expect("a descriptor"),
        flags: CLOEXEC,
        offset,
        size: len,
    };
    // SAFETY: the kernel reads the structure that the request names.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), CREATE, &raw const create) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the descriptor is new.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
