//! The functions of libc that this crate replaces.
//!
//! A definition in the program, or in a preloaded library, has precedence over that of libc. Each
//! function handles the descriptors and the path of the device, and otherwise makes the system call
//! that libc would make. The variadic functions of C are defined with their last argument, which
//! the calling conventions of x86_64 and aarch64 pass in the same register.
#![allow(unsafe_code, reason = "replaces functions of libc")]
#![allow(unreachable_pub, reason = "the linker finds the functions by name")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};

use libc::{off_t, size_t};

use crate::abi::ioctl::RDMA_VERBS_IOCTL;
use crate::errno::{Errno, Result};
use crate::{descriptors, model, syscall, sysfs, test_files};

/// Protocol of the netlink socket that libibverbs would ask for devices.
const NETLINK_RDMA: c_int = 20;

/// Returns `path` if the model is started and the path may be one of its own.
///
/// # Safety
/// `path` is NULL or a C string, which outlives the result.
unsafe fn own_path<'a>(path: *const c_char) -> Option<&'a CStr> {
    if path.is_null() || !model::is_started() {
        return None;
    }
    // SAFETY: as the function's.
    Some(unsafe { CStr::from_ptr(path) })
}

fn fail(errno: Errno) -> c_int {
    syscall::set_errno(errno);
    -1
}

/// # Safety
/// The caller keeps the contract of `open` of libc.
unsafe fn open_any(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: as the function's.
    let Some(own) = (unsafe { own_path(path) }) else {
        // SAFETY: as the function's.
        return unsafe { syscall::open(path, flags, mode) };
    };
    if let Some(number) = sysfs::device_number(own.to_bytes()) {
        let opened = match model::lock().get_mut(number) {
            Some(model) => model.open(),
            None => Err(Errno::ENOENT),
        };
        return opened.unwrap_or_else(fail);
    }
    if own == sysfs::CM_PATH {
        let opened = match model::lock().first_mut() {
            Some(model) => model.open_cm(flags),
            None => Err(Errno::ENOENT),
        };
        return opened.unwrap_or_else(fail);
    }
    if let Some(name) = test_files::file_name(own.to_bytes()) {
        let content = test_files::read(&mut model::lock(), own.to_bytes(), name);
        return content
            .ok_or(Errno::ENOENT)
            .and_then(|content| syscall::memory_file(&content))
            .unwrap_or_else(fail);
    }
    let redirected = sysfs::redirect(own.to_bytes());
    let path = redirected.as_deref().map_or(path, CStr::as_ptr);
    // SAFETY: as the function's.
    unsafe { syscall::open(path, flags, mode) }
}

/// Replaces `open` of libc.
///
/// # Safety
/// The caller keeps the contract of `open` of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: as the function's.
    unsafe { open_any(path, flags, mode) }
}

/// Replaces `open64` of libc.
///
/// # Safety
/// The caller keeps the contract of `open64` of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: as the function's.
    unsafe { open_any(path, flags, mode) }
}

/// Replaces `stat` of libc.
///
/// # Safety
/// The caller keeps the contract of `stat` of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat(path: *const c_char, status: *mut libc::stat) -> c_int {
    // SAFETY: as the function's.
    let own = unsafe { own_path(path) };
    let redirected = own.and_then(|own| sysfs::redirect(own.to_bytes()));
    let path = match own {
        Some(own) if sysfs::device_number(own.to_bytes()).is_some() => sysfs::STAND_IN.as_ptr(),
        _ => redirected.as_deref().map_or(path, CStr::as_ptr),
    };
    // SAFETY: as the function's.
    unsafe { syscall::stat(path, status) }
}

/// Replaces `opendir` of libc.
///
/// # Safety
/// The caller keeps the contract of `opendir` of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut libc::DIR {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: as the function's.
    let fd = unsafe { open_any(path, flags, 0) };
    if fd < 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: the descriptor is a directory, and the result owns it.
    unsafe { libc::fdopendir(fd) }
}

/// Replaces `close` of libc.
///
/// # Safety
/// The caller keeps the contract of `close` of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if descriptors::is_known(fd)
        && let Some(model) = model::owner(&mut model::lock(), fd)
    {
        model.close(fd);
    }
    // SAFETY: as the function's.
    unsafe { syscall::close(fd) }
}

/// Replaces `socket` of libc.
///
/// # Safety
/// The caller keeps the contract of `socket` of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // Without netlink, libibverbs finds the devices in sysfs.
    if model::is_started() && domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        return fail(Errno::EPROTONOSUPPORT);
    }
    syscall::socket(domain, kind, protocol)
}

/// Replaces `ioctl` of libc.
///
/// # Safety
/// The caller keeps the contract of `ioctl` of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if descriptors::is_known(fd) && request == RDMA_VERBS_IOCTL {
        let result = match model::owner(&mut model::lock(), fd) {
            Some(model) => model.ioctl(fd, argument as u64),
            None => Err(Errno::EBADF),
        };
        return result.map_or_else(fail, |()| 0);
    }
    // SAFETY: as the function's.
    unsafe { syscall::ioctl(fd, request, argument) }
}

/// Replaces `write` of libc.
///
/// # Safety
/// The caller keeps the contract of `write` of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, length: size_t) -> isize {
    if descriptors::is_known(fd)
        && let Some(result) = write_command(fd, buffer as u64, length)
    {
        return result.map_or_else(
            |errno| fail(errno) as isize,
            |()| isize::try_from(length).unwrap_or(isize::MAX),
        );
    }
    // SAFETY: as the function's.
    unsafe { syscall::write(fd, buffer, length) }
}

/// Executes a command of the connection manager. `None` if the descriptor is not one.
///
/// Only the command that reads an event fails with `EAGAIN`. It waits unless the program has asked
/// for calls that do not block.
fn write_command(fd: c_int, address: u64, length: usize) -> Option<Result<()>> {
    loop {
        let (result, step) = match model::owner(&mut model::lock(), fd) {
            Some(model) => (model.write_cm(fd, address, length)?, model.is_stepped()),
            None => return Some(Err(Errno::EBADF)),
        };
        if result != Err(Errno::EAGAIN) || syscall::is_nonblocking(fd) {
            return Some(result);
        }
        if step {
            crate::step();
        } else if let Err(errno) = syscall::is_readable(fd, -1) {
            return Some(Err(errno));
        }
    }
}

/// Replaces `fstat` of libc: librdmacm requires a character device.
///
/// # Safety
/// The caller keeps the contract of `fstat` of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat(fd: c_int, status: *mut libc::stat) -> c_int {
    // SAFETY: as the function's.
    let result = unsafe { syscall::fstat(fd, status) };
    let is_cm = result == 0
        && descriptors::is_known(fd)
        && model::owner(&mut model::lock(), fd).is_some_and(|model| model.is_cm(fd));
    if is_cm {
        // SAFETY: the kernel has written the structure.
        unsafe { (*status).st_mode = libc::S_IFCHR | 0o666 };
    }
    result
}

/// Replaces `fcntl` of libc.
///
/// # Safety
/// The caller keeps the contract of `fcntl` of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    let result = syscall::fcntl(fd, command, argument);
    if result >= 0
        && matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC)
        && descriptors::is_known(fd)
        && let Some(model) = model::owner(&mut model::lock(), fd)
    {
        model.duplicate(fd, result);
    }
    result
}

/// Replaces `fcntl64` of libc.
///
/// # Safety
/// The caller keeps the contract of `fcntl64` of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: as the function's.
    unsafe { fcntl(fd, command, argument) }
}

/// # Safety
/// The caller keeps the contract of `mmap` of libc.
unsafe fn map_any(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if descriptors::is_known(fd) {
        let mapped = model::owner(&mut model::lock(), fd)
            .and_then(|model| model.mmap(fd, length, protection, offset.cast_unsigned()));
        match mapped {
            Some(Ok(start)) => return start,
            Some(Err(errno)) => {
                syscall::set_errno(errno);
                return libc::MAP_FAILED;
            }
            None => {}
        }
    }
    // SAFETY: as the function's.
    unsafe { syscall::mmap(address, length, protection, flags, fd, offset) }
}

/// Replaces `mmap` of libc.
///
/// # Safety
/// The caller keeps the contract of `mmap` of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: as the function's.
    unsafe { map_any(address, length, protection, flags, fd, offset) }
}

/// Replaces `mmap64` of libc.
///
/// # Safety
/// The caller keeps the contract of `mmap64` of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: as the function's.
    unsafe { map_any(address, length, protection, flags, fd, offset) }
}
