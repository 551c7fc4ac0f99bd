//! Device memory.

use core::ffi::{c_int, c_uint, c_void};

use super::{unsupported, verbs_get_ctx_op};
use crate::{ibv_alloc_dm_attr, ibv_context, ibv_dm, ibv_mr, ibv_pd};

/// Allocates device memory. Returns NULL and sets `errno` on failure.
///
/// # Safety
/// `context` must be live and `attr` readable.
#[inline]
pub unsafe fn ibv_alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!(context, alloc_dm) {
            Some(alloc_dm) => alloc_dm(context, attr),
            None => unsupported(),
        }
    }
}

/// Frees device memory.
///
/// # Safety
/// `dm` must be live and must not be used after the call.
#[inline]
pub unsafe fn ibv_free_dm(dm: *mut ibv_dm) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*dm).context, free_dm) {
            Some(free_dm) => free_dm(dm),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Copies host memory to device memory. Returns EOPNOTSUPP if the function of `dm` is NULL, unlike
/// the header's function.
///
/// # Safety
/// `dm` must be live, its function must be NULL or valid, and `host_addr` must be readable for
/// `length`. The provider mana leaves the function uninitialized (rdma-core 62 to 65).
#[inline]
pub unsafe fn ibv_memcpy_to_dm(
    dm: *mut ibv_dm,
    dm_offset: u64,
    host_addr: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match (*dm).memcpy_to_dm {
            Some(memcpy_to_dm) => memcpy_to_dm(dm, dm_offset, host_addr, length),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Copies device memory to host memory. Returns EOPNOTSUPP if the function of `dm` is NULL, unlike
/// the header's function.
///
/// # Safety
/// The requirements are those of [`ibv_memcpy_to_dm`], but `host_addr` must be writable.
#[inline]
pub unsafe fn ibv_memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match (*dm).memcpy_from_dm {
            Some(memcpy_from_dm) => memcpy_from_dm(host_addr, dm, dm_offset, length),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Registers device memory. Returns NULL and sets `errno` on failure.
///
/// # Safety
/// `pd` and `dm` must be live.
#[inline]
pub unsafe fn ibv_reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*pd).context, reg_dm_mr) {
            Some(reg_dm_mr) => reg_dm_mr(pd, dm, dm_offset, length, access),
            None => unsupported(),
        }
    }
}
