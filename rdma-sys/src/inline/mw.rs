//! Memory windows.

use core::ffi::c_int;

use super::{call, unsupported};
use crate::{IBV_MW_TYPE_1, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd, ibv_qp};

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
