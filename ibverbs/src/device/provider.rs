//! The provider of an open device: the library that posts, polls and destroys for it.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};

use rdma_sys::ibv_context;

/// Returns the name of the provider of an open device, such as `mlx5`, or `None` if it is unknown.
///
/// The name is taken from the file that has the function `poll_cq` of the device, for example
/// `libmlx5.so.1` or `libibverbs/librxe-rdmav34.so`. So it names the code that will run, unlike the
/// name of a device, which an administrator can change. It is unknown in a program that is linked
/// with the provider statically.
///
/// # Safety
/// The context is open.
pub(super) unsafe fn name(context: *mut ibv_context) -> Option<String> {
    // SAFETY: guaranteed by the caller. The table of functions is complete when the device is open.
    let poll = unsafe { (*context).ops.poll_cq }?;
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: the address is only compared, and `info` is writable.
    let found = unsafe { libc::dladdr(poll as *const c_void, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader keeps the name while the library is loaded, and libibverbs unloads none.
    let path = unsafe { CStr::from_ptr(info.dli_fname) };
    of_file(path.to_str().ok()?)
}

/// Returns the name of the provider in a file, or `None` if it is not one of a library.
fn of_file(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?.strip_prefix("lib")?;
    let end = file.find("-rdmav").or_else(|| file.find(".so"))?;
    Some(file[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_its_provider() {
        for (path, expected) in [
            (
                "/usr/lib/x86_64-linux-gnu/libmlx5.so.1.24.44.0",
                Some("mlx5"),
            ),
            ("/usr/lib/libibverbs/libmlx5-rdmav34.so", Some("mlx5")),
            (
                "/usr/lib/libibverbs/libvmw_pvrdma-rdmav57.so",
                Some("vmw_pvrdma"),
            ),
            ("librxe-rdmav34.so", Some("rxe")),
            ("/usr/bin/program", None),
            ("", None),
        ] {
            assert_eq!(of_file(path).as_deref(), expected, "{path}");
        }
    }
}
