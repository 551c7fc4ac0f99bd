//! Memory of the program: copies for the kernel's commands, and pinned ranges for the adapter.
//!
//! The model runs in the address space of the program. Commands are copied with
//! `process_vm_readv` and `process_vm_writev`, which report a bad address as the kernel does. The
//! adapter accesses pinned ranges directly, because it must not make a system call for each packet.
#![allow(unsafe_code, reason = "accesses memory of the program by address")]

use std::ffi::{c_int, c_void};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::errno::{Errno, Result};
use crate::syscall;

/// Size of a page, in bytes.
pub(crate) const PAGE: u64 = 4096;

/// Copies memory of the program. Fails with `EFAULT` if a part is not readable.
pub(crate) fn copy_in(address: u64, into: &mut [u8]) -> Result<()> {
    if into.is_empty() {
        return Ok(());
    }
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: into.len(),
    };
    // SAFETY: the kernel writes at most `into.len()` bytes to `into`, and checks `address`.
    let copied = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    (usize::try_from(copied) == Ok(into.len()))
        .then_some(())
        .ok_or(Errno::EFAULT)
}

/// Reads a structure of the kernel's interface.
pub(crate) fn read<T: FromBytes + IntoBytes>(address: u64) -> Result<T> {
    let mut value = T::new_zeroed();
    copy_in(address, value.as_mut_bytes())?;
    Ok(value)
}

/// Copies to memory of the program. Fails with `EFAULT` if a part is not writable.
///
/// The address comes from an ioctl of the program, which grants the access.
pub(crate) fn copy_out(address: u64, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let local = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel reads `bytes` only, and checks `address`. The program passed the address
    // for output, so it expects the change.
    let copied = unsafe {
        libc::process_vm_writev(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    (usize::try_from(copied) == Ok(bytes.len()))
        .then_some(())
        .ok_or(Errno::EFAULT)
}

/// Writes a structure of the kernel's interface.
pub(crate) fn write<T: IntoBytes + Immutable>(address: u64, value: &T) -> Result<()> {
    copy_out(address, value.as_bytes())
}

/// A range of memory that the adapter may access.
///
/// The program promises with the ioctl that it keeps the range mapped until it destroys the object
/// (with hardware, the pages would stay pinned). Every access is checked against the range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pinned {
    start: u64,
    length: u64,
    /// The functions that access the memory, if the processor cannot.
    copier: Option<Copier>,
}

/// Functions of the program that copy memory of another device, such as a GPU. They return 0 if
/// they succeed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copier {
    /// Copies `length` bytes at an address of the device to memory of the process.
    pub(crate) read: unsafe extern "C" fn(to: *mut c_void, from: u64, length: usize) -> c_int,
    /// Copies `length` bytes of the process to an address of the device.
    pub(crate) write: unsafe extern "C" fn(to: u64, from: *const c_void, length: usize) -> c_int,
}

/// Checks that the program has mapped a range, and returns it for the adapter.
///
/// Fails with `EFAULT` if a part is not mapped, or not writable although `writable` is `true`.
pub(crate) fn pin(start: u64, length: u64, writable: bool) -> Result<Pinned> {
    let end = start.checked_add(length).ok_or(Errno::EINVAL)?;
    if start == 0 {
        return Err(Errno::EFAULT);
    }
    let maps = fs::read_to_string("/proc/self/maps").map_err(|_| Errno::EFAULT)?;
    let mut at = start;
    for line in maps.lines() {
        let Some((low, high, permissions)) = parse_map(line) else {
            continue;
        };
        if low > at || at >= end {
            break;
        }
        if high > at {
            if !permissions.starts_with('r') || (writable && permissions.as_bytes()[1] != b'w') {
                return Err(Errno::EFAULT);
            }
            at = high;
        }
    }
    if at < end {
        return Err(Errno::EFAULT);
    }
    Ok(Pinned {
        start,
        length,
        copier: None,
    })
}

/// A part of a memory, which a file backs, such as pages of a virtual machine.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Offset in the memory in bytes, a multiple of 4096.
    pub at: u64,
    /// Length in bytes, a multiple of 4096.
    pub length: u64,
    /// The file, opened for reading and writing.
    pub file: &'a File,
    /// Offset in the file in bytes, a multiple of 4096.
    pub offset: u64,
}

/// A mapping of memory that consists of parts, until the value is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: *mut c_void,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is accessed only as `Pinned`.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps parts in the order of their offsets. What is between them is memory without a meaning.
    /// The files must keep their size.
    pub(crate) fn new(parts: &[Part<'_>]) -> Result<Self> {
        let length = parts
            .last()
            .and_then(|part| part.at.checked_add(part.length));
        let length = length.and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|length| *length > 0).ok_or(Errno::EINVAL)?;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { syscall::mmap(std::ptr::null_mut(), length, both, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let mapping = Self { start, length };
        for part in parts {
            mapping.place(part)?;
        }
        Ok(mapping)
    }

    fn place(&self, part: &Part<'_>) -> Result<()> {
        let range = self.part(part.at, part.length).ok_or(Errno::EINVAL)?;
        let offset = libc::off_t::try_from(part.offset).map_err(|_| Errno::EINVAL)?;
        let length = usize::try_from(part.length).map_err(|_| Errno::EINVAL)?;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
        let (address, fd) = (range.start as *mut c_void, part.file.as_raw_fd());
        // SAFETY: the range is inside the mapping, as `part` checked.
        let placed = unsafe { syscall::mmap(address, length, both, fixed, fd, offset) };
        if placed == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        Ok(())
    }

    /// Returns a part of the mapping, or `None` if it is not inside. The mapping must outlive it.
    pub(crate) fn part(&self, offset: u64, length: u64) -> Option<Pinned> {
        Pinned::of_model(self.start, self.length as u64).part(offset, length)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is that of `new`. Its owner has removed all that accesses it.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

/// Parses a line of `/proc/self/maps` such as `7f00-7f10 rw-p …`.
fn parse_map(line: &str) -> Option<(u64, u64, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (low, high) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(low)?, number(high)?, rest.get(..4)?))
}

impl Pinned {
    /// Returns the range of a mapping that the model made itself and never unmaps while it is used.
    pub(crate) fn of_model(start: *mut c_void, length: u64) -> Self {
        Self {
            start: start as u64,
            length,
            copier: None,
        }
    }

    /// Returns a range of another device's memory, which stays allocated while it is registered.
    pub(crate) fn of_device(start: u64, length: u64, copier: Copier) -> Self {
        Self {
            start,
            length,
            copier: Some(copier),
        }
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns a part of the range, or `None` if it is not inside.
    pub(crate) fn part(&self, offset: u64, length: u64) -> Option<Self> {
        (offset.checked_add(length)? <= self.length).then_some(Self {
            start: self.start + offset,
            length,
            copier: self.copier,
        })
    }

    /// Returns the address of `size` bytes at `offset`.
    ///
    /// # Panics
    /// Panics if they are not inside the range: the callers compute offsets from checked sizes.
    fn at<T>(&self, offset: u64, size: u64) -> *mut T {
        assert!(
            offset
                .checked_add(size)
                .is_some_and(|end| end <= self.length),
            "{size} bytes at {offset} are outside of a range of {} bytes",
            self.length
        );
        (self.start + offset) as *mut T
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        let from = self.at::<u8>(offset, into.len() as u64);
        if let Some(copier) = self.copier {
            // SAFETY: `at` checked the range, and the function writes `into` only.
            let status =
                unsafe { (copier.read)(into.as_mut_ptr().cast(), from as u64, into.len()) };
            assert_eq!(status, 0, "reading memory of another device");
            return;
        }
        // SAFETY: `at` checked the range, which the program keeps mapped (see the type). The copy
        // may race with the program, as that of an adapter does; the bytes are only data.
        unsafe { std::ptr::copy(from, into.as_mut_ptr(), into.len()) }
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        let to = self.at::<u8>(offset, bytes.len() as u64);
        if let Some(copier) = self.copier {
            // SAFETY: `at` checked the range, and the function reads `bytes` only.
            let status = unsafe { (copier.write)(to as u64, bytes.as_ptr().cast(), bytes.len()) };
            assert_eq!(status, 0, "writing memory of another device");
            return;
        }
        // SAFETY: as in `read`; the program registered the range for writing.
        unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) }
        // Completions are written after the data.
        fence(Ordering::Release);
    }

    /// Loads a number in the order of the processor. `offset` and the range are aligned to 4 bytes.
    pub(crate) fn load_u32(&self, offset: u64) -> u32 {
        self.load_be32(offset).to_be()
    }

    /// Loads a big-endian number. `offset` and the range are aligned to 4 bytes.
    pub(crate) fn load_be32(&self, offset: u64) -> u32 {
        // SAFETY: as in `read`. Queues and doorbell records are aligned to 4 bytes at least.
        let value = unsafe { AtomicU32::from_ptr(self.at(offset, 4)) };
        u32::from_be(value.load(Ordering::Acquire))
    }

    pub(crate) fn store_be32(&self, offset: u64, value: u32) {
        // SAFETY: as in `load_be32`.
        let target = unsafe { AtomicU32::from_ptr(self.at(offset, 4)) };
        target.store(value.to_be(), Ordering::Release);
    }

    pub(crate) fn store_u8(&self, offset: u64, value: u8) {
        // SAFETY: as in `read`; a byte has no alignment.
        let target = unsafe { AtomicU8::from_ptr(self.at(offset, 1)) };
        target.store(value, Ordering::Release);
    }

    pub(crate) fn load_be16(&self, offset: u64) -> u16 {
        // SAFETY: as in `load_be32`, with alignment 2.
        let value = unsafe { AtomicU16::from_ptr(self.at(offset, 2)) };
        u16::from_be(value.load(Ordering::Acquire))
    }

    /// Replaces the number at the start of the range by `change` of it and returns the old one.
    ///
    /// # Panics
    /// Panics if the range is shorter than 8 bytes or not aligned to 8 bytes.
    pub(crate) fn update_u64(&self, change: impl Fn(u64) -> Option<u64>) -> u64 {
        assert_eq!(self.start % 8, 0, "atomic operation on unaligned memory");
        if self.copier.is_some() {
            // Only requests of this adapter are atomic, and the lock of the model is held.
            let mut bytes = [0; 8];
            self.read(0, &mut bytes);
            let old = u64::from_ne_bytes(bytes);
            if let Some(new) = change(old) {
                self.write(0, &new.to_ne_bytes());
            }
            return old;
        }
        // SAFETY: as in `read`; the alignment is checked.
        let target = unsafe { AtomicU64::from_ptr(self.at(0, 8)) };
        match target.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change) {
            Ok(old) | Err(old) => old,
        }
    }
}
