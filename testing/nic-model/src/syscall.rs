//! System calls that bypass the functions of libc that this crate replaces.
#![allow(unsafe_code, reason = "raw system calls")]

use std::ffi::{c_char, c_int, c_long, c_ulong, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::errno::{Errno, Result};

/// Opens a file, as `open` does.
///
/// # Safety
/// `path` is a C string, or the kernel reports `EFAULT`.
pub(crate) unsafe fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the arguments are those of the caller.
    result(unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) })
}

/// Returns the status of a file, as `stat` does.
///
/// # Safety
/// `path` is a C string and `status` is valid for writing, or the kernel reports `EFAULT`.
pub(crate) unsafe fn stat(path: *const c_char, status: *mut libc::stat) -> c_int {
    // SAFETY: the arguments are those of the caller.
    result(unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, status, 0) })
}

/// Closes a descriptor.
///
/// # Safety
/// The caller owns the descriptor.
pub(crate) unsafe fn close(fd: RawFd) -> c_int {
    // SAFETY: as the function's.
    result(unsafe { libc::syscall(libc::SYS_close, fd) })
}

/// Executes an ioctl.
///
/// # Safety
/// The arguments are valid for the request.
pub(crate) unsafe fn ioctl(fd: RawFd, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: as the function's.
    result(unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) })
}

/// Creates a socket.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the call has no pointers.
    result(unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) })
}

/// Duplicates a descriptor, as `fcntl` with `F_DUPFD` or `F_DUPFD_CLOEXEC` does.
pub(crate) fn fcntl(fd: RawFd, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: the commands that this crate passes have a number as argument, and those of the
    // program are passed on unchanged.
    result(unsafe { libc::syscall(libc::SYS_fcntl, fd, command, argument) })
}

/// Maps memory.
///
/// # Safety
/// The caller keeps the contract of `mmap`: with `MAP_FIXED`, it owns the address range.
pub(crate) unsafe fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: RawFd,
    offset: libc::off_t,
) -> *mut c_void {
    // SAFETY: as the function's.
    let start = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            address,
            length,
            protection,
            flags,
            fd,
            offset,
        )
    };
    start as *mut c_void
}

fn result(value: c_long) -> c_int {
    c_int::try_from(value).unwrap_or(-1)
}

/// Returns the real user ID of the process.
pub(crate) fn user() -> u32 {
    // SAFETY: the call has no arguments.
    unsafe { libc::getuid() }
}

/// Sets `errno` of the calling thread.
pub(crate) fn set_errno(errno: Errno) {
    // SAFETY: the location belongs to the calling thread.
    unsafe { *libc::__errno_location() = errno.0 }
}

/// Opens `/dev/null` or another device without side effects. The descriptor stands for a verbs
/// device.
pub(crate) fn open_stand_in(path: &std::ffi::CStr) -> c_int {
    // SAFETY: `path` is a C string.
    unsafe { open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC, 0) }
}

/// Creates a file in memory with this content, to be read from the beginning.
pub(crate) fn memory_file(content: &str) -> Result<c_int> {
    use std::io::{Seek, Write};
    use std::os::fd::IntoRawFd;

    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"nic-model".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the descriptor is new.
    let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
    file.write_all(content.as_bytes())
        .and_then(|()| file.rewind())
        .map_err(|_| Errno::last())?;
    Ok(file.into_raw_fd())
}

/// Creates a pipe: the read end and the write end.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(Errno::last());
    }
    // SAFETY: the call returned two new descriptors.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Writes to a descriptor.
///
/// # Safety
/// The caller keeps the contract of `write`.
pub(crate) unsafe fn write(fd: RawFd, buffer: *const c_void, length: usize) -> isize {
    // SAFETY: as the function's.
    let written = unsafe { libc::syscall(libc::SYS_write, fd, buffer, length) };
    isize::try_from(written).unwrap_or(-1)
}

/// Returns the status of an open file, as `fstat` does.
///
/// # Safety
/// `status` is valid for writing, or the kernel reports `EFAULT`.
pub(crate) unsafe fn fstat(fd: RawFd, status: *mut libc::stat) -> c_int {
    // SAFETY: as the function's.
    result(unsafe { libc::syscall(libc::SYS_fstat, fd, status) })
}

/// Creates a descriptor for the program that [`signal`] makes readable, and a duplicate.
/// `flags` are those of `open`.
pub(crate) fn event_descriptor(flags: c_int) -> Result<(OwnedFd, OwnedFd)> {
    let mut own = libc::EFD_CLOEXEC;
    if flags & libc::O_NONBLOCK != 0 {
        own |= libc::EFD_NONBLOCK;
    }
    // SAFETY: the call has no pointers.
    let fd = unsafe { libc::eventfd(0, own) };
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the descriptor is new.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let copy = fd.try_clone().map_err(|_| Errno::EMFILE)?;
    Ok((fd, copy))
}

/// Makes an event descriptor readable.
pub(crate) fn signal(fd: RawFd) {
    let one = 1_u64;
    // SAFETY: the buffer has eight bytes. The counter never reaches the value at which it blocks.
    unsafe { write(fd, (&raw const one).cast(), 8) };
}

/// Makes an event descriptor unreadable.
pub(crate) fn clear_signal(fd: RawFd) {
    let mut count = 0_u64;
    if is_readable(fd, 0) == Ok(true) {
        // SAFETY: the buffer has eight bytes. Only the model reads, under its lock, so the call
        // does not block.
        unsafe { libc::syscall(libc::SYS_read, fd, &raw mut count, 8) };
    }
}

/// Waits until a descriptor is readable, for a number of milliseconds or, if it is negative,
/// forever.
pub(crate) fn is_readable(fd: RawFd, milliseconds: c_int) -> Result<bool> {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the array has one element.
    match unsafe { libc::poll(&raw mut poll, 1, milliseconds) } {
        -1 => Err(Errno::last()),
        count => Ok(count > 0),
    }
}

/// Returns `true` if calls on the descriptor do not block.
pub(crate) fn is_nonblocking(fd: RawFd) -> bool {
    fcntl(fd, libc::F_GETFL, 0) & libc::O_NONBLOCK != 0
}

pub(crate) fn set_nonblocking(fd: RawFd) -> Result<()> {
    let flags = fcntl(fd, libc::F_GETFL, 0);
    let wanted = c_ulong::try_from(flags | libc::O_NONBLOCK).map_err(|_| Errno::EBADF)?;
    if flags < 0 || fcntl(fd, libc::F_SETFL, wanted) < 0 {
        return Err(Errno::last());
    }
    Ok(())
}

/// Returns the limit on locked memory in bytes, or `None` if none applies to the calling thread.
pub(crate) fn locked_memory_limit() -> Option<u64> {
    const CAP_IPC_LOCK: u32 = 14;
    const VERSION_3: u32 = 0x2008_0522;

    let mut header = [VERSION_3, 0];
    // Effective, permitted and inheritable capabilities: 0 to 31, and from 32.
    let mut data = [[0_u32; 3]; 2];
    // SAFETY: the arrays have the layout of the structures that the kernel documents.
    let status = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), data.as_mut_ptr()) };
    if status == 0 && data[0][0] & 1 << CAP_IPC_LOCK != 0 {
        return None;
    }
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is valid for writing.
    let status = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (status == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Returns `true` if the calling thread may run on a processor.
pub(crate) fn may_run_on(cpu: u32) -> bool {
    // SAFETY: a set of processors is an array of integers.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = size_of_val(&set);
    // SAFETY: the set is valid for writing, and has this size.
    let status = unsafe { libc::sched_getaffinity(0, size, &raw mut set) };
    let cpu = cpu as usize;
    // SAFETY: the number is inside of the set.
    status == 0 && cpu < 8 * size && unsafe { libc::CPU_ISSET(cpu, &set) }
}

/// Memory that the model and the program share: a page with a clock, or memory of the device.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    file: OwnedFd,
    start: *mut c_void,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Allocates whole pages.
    pub(crate) fn new(length: usize) -> Result<Self> {
        let length = length.next_multiple_of(4096);
        let size = libc::off_t::try_from(length).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the name is a C string.
        let fd = unsafe {
            libc::memfd_create(
                c"nic-model".as_ptr(),
                libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
            )
        };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: the descriptor is new.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the call has no pointers.
        if unsafe { libc::ftruncate(fd, size) } != 0 {
            return Err(Errno::last());
        }
        let both = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { mmap(std::ptr::null_mut(), length, both, libc::MAP_SHARED, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        Ok(Self {
            file,
            start,
            length,
        })
    }

    /// Maps the memory a second time, for the program.
    pub(crate) fn map(&self, length: usize, protection: c_int) -> Result<*mut c_void> {
        if length > self.length {
            return Err(Errno::EINVAL);
        }
        let fd = self.file.as_raw_fd();
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        Ok(start)
    }

    /// Exports the memory as a dma-buf, which keeps its pages. Fails with `EOPNOTSUPP` if the
    /// kernel makes no dma-bufs of memory (`/dev/udmabuf`).
    pub(crate) fn export(&self) -> Result<OwnedFd> {
        /// `UDMABUF_CREATE`: `_IOW('u', 0x42, struct udmabuf_create)`.
        const CREATE: c_ulong = 0x4018_7542;
        const CLOEXEC: u32 = 1;
        /// `struct udmabuf_create`.
        #[repr(C)]
        struct Create {
            memfd: RawFd,
            flags: u32,
            offset: u64,
            size: u64,
        }

        let file = self.file.as_raw_fd();
        let seal = c_ulong::from(libc::F_SEAL_SHRINK.cast_unsigned());
        if fcntl(file, libc::F_ADD_SEALS, seal) != 0 {
            return Err(Errno::last());
        }
        // SAFETY: the path is a C string.
        let device = unsafe { open(c"/dev/udmabuf".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC, 0) };
        if device < 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        // SAFETY: the descriptor is new.
        let device = unsafe { OwnedFd::from_raw_fd(device) };
        let mut create = Create {
            memfd: file,
            flags: CLOEXEC,
            offset: 0,
            size: self.length as u64,
        };
        // SAFETY: the kernel reads the structure that the request names.
        let fd = unsafe { ioctl(device.as_raw_fd(), CREATE, (&raw mut create).cast()) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: the descriptor is new.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Returns the memory for the adapter.
    pub(crate) fn pinned(&self) -> crate::memory::Pinned {
        crate::memory::Pinned::of_model(self.start, self.length as u64)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the model made this mapping and no longer uses it.
        unsafe { libc::munmap(self.start, self.length) };
    }
}
