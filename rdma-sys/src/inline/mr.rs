//! Memory regions.

#![allow(
    clippy::cast_sign_loss,
    reason = "C's functions disagree on the sign of access flags"
)]

use core::ffi::{c_int, c_uint, c_void};

use super::{unsupported, verbs_get_ctx_op};
use crate::{
    IBV_ACCESS_OPTIONAL_RANGE, ibv_advise_mr_advice, ibv_mr, ibv_pd, ibv_reg_mr_iova2, ibv_sge,
};

/// Functions whose names the headers' macros take over.
mod raw {
    use core::ffi::{c_int, c_void};

    use crate::{ibv_mr, ibv_pd};

    unsafe extern "C" {
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

/// Registers memory; NULL and errno on failure.
///
/// The header's macro chooses the older function only when the compiler knows that no optional flag
/// (`IBV_ACCESS_OPTIONAL_RANGE`) is set; here the value decides, which a constant folds to the
/// same. The newer function drops optional flags that the kernel does not know.
///
/// # Safety
/// `pd` must be live. The memory must stay mapped while registered, and be left to the device and
/// its peers as far as `access` lets them in.
#[inline]
pub unsafe fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let flags = access as c_uint;
    // SAFETY: the caller's promise. The address is exposed: the device will use it.
    unsafe {
        if flags & IBV_ACCESS_OPTIONAL_RANGE == 0 {
            raw::ibv_reg_mr(pd, addr, length, access)
        } else {
            ibv_reg_mr_iova2(pd, addr, length, addr.expose_provenance() as u64, flags)
        }
    }
}

/// Registers memory that requests will address from `iova` on; NULL and errno on failure. See
/// [`ibv_reg_mr`].
///
/// # Safety
/// As for [`ibv_reg_mr`].
#[inline]
pub unsafe fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    let flags = access as c_uint;
    // SAFETY: the caller's promise.
    unsafe {
        if flags & IBV_ACCESS_OPTIONAL_RANGE == 0 {
            raw::ibv_reg_mr_iova(pd, addr, length, iova, access)
        } else {
            ibv_reg_mr_iova2(pd, addr, length, iova, flags)
        }
    }
}

/// Advises the kernel about ranges of regions (prefetch).
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
    // SAFETY: the caller's promise.
    unsafe {
        match verbs_get_ctx_op!((*pd).context, advise_mr) {
            Some(advise_mr) => advise_mr(pd, advice, flags, sg_list, num_sge),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// A region that drops what is written and reads as nothing in particular; NULL and errno on
/// failure.
///
/// # Safety
/// `pd` must be live.
#[inline]
pub unsafe fn ibv_alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    unsafe {
        match verbs_get_ctx_op!((*pd).context, alloc_null_mr) {
            Some(alloc_null_mr) => alloc_null_mr(pd),
            None => unsupported(),
        }
    }
}
