//! Memory regions.

#![allow(
    clippy::cast_sign_loss,
    reason = "the C functions disagree on the sign of access flags"
)]

use core::ffi::{c_int, c_uint, c_void};

use super::{unsupported, verbs_get_ctx_op};
use crate::{
    IBV_ACCESS_OPTIONAL_RANGE, ibv_advise_mr_advice, ibv_mr, ibv_pd, ibv_reg_mr_iova2, ibv_sge,
};

/// Functions of the library that the headers replace by macros of the same name.
mod raw {
    use core::ffi::{c_int, c_void};

    use crate::{ibv_mr, ibv_pd};

    crate::library::functions! { Ibverbs;
        pub(super) fn ibv_reg_mr(
            pd: *mut ibv_pd,
            addr: *mut c_void,
            length: usize,
            access: c_int,
        ) -> *mut ibv_mr;
        pub(super) fn ibv_reg_mr_iova(
            pd: *mut ibv_pd,
            addr: *mut c_void,
            length: usize,
            iova: u64,
            access: c_int,
        ) -> *mut ibv_mr;
    }
}

/// Registers memory. Returns NULL and sets `errno` on failure.
///
/// Calls the newer function `ibv_reg_mr_iova2` if an optional flag (`IBV_ACCESS_OPTIONAL_RANGE`) is
/// set. It ignores optional flags that the kernel does not support. The header's macro chooses the
/// function at compile time; a constant `access` has the same effect here.
///
/// # Safety
/// `pd` must be live. While the memory is registered, it must stay mapped, and the program must not
/// use it in ways that conflict with the accesses that `access` permits to the device and its
/// peers.
#[inline]
pub unsafe fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let flags = access as c_uint;
    // SAFETY: the caller guarantees that the arguments are valid. The address is exposed because
    // the device will use it.
    unsafe {
        if flags & IBV_ACCESS_OPTIONAL_RANGE == 0 {
            raw::ibv_reg_mr(pd, addr, length, access)
        } else {
            ibv_reg_mr_iova2(pd, addr, length, addr.expose_provenance() as u64, flags)
        }
    }
}

/// Registers memory that requests address starting at `iova`. Returns NULL and sets `errno` on
/// failure. See [`ibv_reg_mr`].
///
/// # Safety
/// The requirements are those of [`ibv_reg_mr`].
#[inline]
pub unsafe fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    let flags = access as c_uint;
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        if flags & IBV_ACCESS_OPTIONAL_RANGE == 0 {
            raw::ibv_reg_mr_iova(pd, addr, length, iova, access)
        } else {
            ibv_reg_mr_iova2(pd, addr, length, iova, flags)
        }
    }
}

/// Gives the kernel advice about ranges of regions, for example to prefetch them.
///
/// # Safety
/// `pd` must be live and `sg_list` readable for `num_sge`.
#[inline]
pub unsafe fn ibv_advise_mr(
    pd: *mut ibv_pd,
    advice: ibv_advise_mr_advice,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sge: u32,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*pd).context, advise_mr) {
            Some(advise_mr) => advise_mr(pd, advice, flags, sg_list, num_sge),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Allocates a region that discards writes; reads return unspecified data. Returns NULL and sets
/// `errno` on failure.
///
/// # Safety
/// `pd` must be live.
#[inline]
pub unsafe fn ibv_alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*pd).context, alloc_null_mr) {
            Some(alloc_null_mr) => alloc_null_mr(pd),
            None => unsupported(),
        }
    }
}
