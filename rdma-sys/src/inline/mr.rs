//! Memory regions, memory windows, device memory.

#![allow(
    clippy::cast_sign_loss,
    reason = "C's functions disagree on the sign of access flags"
)]

use core::ffi::{c_int, c_uint, c_void};

use super::{call, unsupported, verbs_get_ctx_op};
use crate::{
    IBV_ACCESS_OPTIONAL_RANGE, IBV_MW_TYPE_1, ibv_advise_mr_advice, ibv_alloc_dm_attr, ibv_context,
    ibv_dm, ibv_mr, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd, ibv_qp, ibv_reg_mr_iova2, ibv_sge,
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
/// (`IBV_ACCESS_OPTIONAL_RANGE`) is set; here the value decides, which a constant folds to the same. The newer function
/// drops optional flags that the kernel does not know.
///
/// # Safety
/// `pd` must be live. The memory must stay mapped while registered, and be left to the device and its peers as far as
/// `access` lets them in.
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

/// Registers memory that requests will address from `iova` on; NULL and errno on failure. See [`ibv_reg_mr`].
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

/// A region that drops what is written and reads as nothing in particular; NULL and errno on failure.
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

/// Allocates a memory window; NULL and errno on failure.
///
/// # Safety
/// `pd` must be live.
#[inline]
pub unsafe fn ibv_alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the caller's promise.
    unsafe {
        match (*(*pd).context).ops.alloc_mw {
            Some(alloc_mw) => alloc_mw(pd, kind),
            None => unsupported(),
        }
    }
}

/// Frees a memory window.
///
/// # Safety
/// `mw` must be live, and is not afterwards.
#[inline]
pub unsafe fn ibv_dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: who made the window can free it.
    unsafe { call!((*(*mw).context).ops.dealloc_mw, mw) }
}

/// Binds a memory window of type 1.
///
/// # Safety
/// `qp` and `mw` must be live, `mw_bind` valid with the region it names live.
#[inline]
pub unsafe fn ibv_bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the caller's promise; who made the window can bind it.
    unsafe {
        if (*mw).type_ != IBV_MW_TYPE_1 {
            return libc::EINVAL;
        }
        let info = (*mw_bind).bind_info;
        if info.mr.is_null() && (info.addr != 0 || info.length != 0) {
            return libc::EINVAL;
        }
        if !info.mr.is_null() && (*mw).pd != (*info.mr).pd {
            return libc::EPERM;
        }
        call!((*(*mw).context).ops.bind_mw, qp, mw, mw_bind)
    }
}

/// The next key of a window of type 2: the low 8 bits count up, and wrap.
#[inline]
pub const fn ibv_inc_rkey(rkey: u32) -> u32 {
    (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff)
}

/// Allocates device memory; NULL and errno on failure.
///
/// # Safety
/// `context` must be live and `attr` readable.
#[inline]
pub unsafe fn ibv_alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm {
    // SAFETY: the caller's promise.
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
/// `dm` must be live, and is not afterwards.
#[inline]
pub unsafe fn ibv_free_dm(dm: *mut ibv_dm) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match verbs_get_ctx_op!((*dm).context, free_dm) {
            Some(free_dm) => free_dm(dm),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Copies into device memory.
///
/// # Safety
/// `dm` must be live and `host_addr` readable for `length`.
#[inline]
pub unsafe fn ibv_memcpy_to_dm(
    dm: *mut ibv_dm,
    dm_offset: u64,
    host_addr: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: all device memory has the copying functions.
    unsafe { call!((*dm).memcpy_to_dm, dm, dm_offset, host_addr, length) }
}

/// Copies out of device memory.
///
/// # Safety
/// `dm` must be live and `host_addr` writable for `length`.
#[inline]
pub unsafe fn ibv_memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: all device memory has the copying functions.
    unsafe { call!((*dm).memcpy_from_dm, host_addr, dm, dm_offset, length) }
}

/// Registers device memory; NULL and errno on failure.
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
    // SAFETY: the caller's promise.
    unsafe {
        match verbs_get_ctx_op!((*pd).context, reg_dm_mr) {
            Some(reg_dm_mr) => reg_dm_mr(pd, dm, dm_offset, length, access),
            None => unsupported(),
        }
    }
}
