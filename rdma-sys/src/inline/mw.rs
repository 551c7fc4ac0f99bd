//! Memory windows.

use core::ffi::c_int;

use super::{call, unsupported};
use crate::{IBV_MW_TYPE_1, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd, ibv_qp};

/// Allocates a memory window. Returns NULL and sets `errno` on failure.
///
/// # Safety
/// `pd` must be live.
#[inline]
pub unsafe fn ibv_alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the caller guarantees that the arguments are valid.
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
/// `mw` must be live and must not be used after the call.
#[inline]
pub unsafe fn ibv_dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the caller guarantees that the window is live; libibverbs sets this entry of the
    // classic table if the provider does not.
    unsafe { call!((*(*mw).context).ops.dealloc_mw, mw) }
}

/// Binds a memory window of type 1.
///
/// # Safety
/// `qp` and `mw` must be live. `mw_bind` must be valid, and the region that it refers to must be
/// live.
#[inline]
pub unsafe fn ibv_bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid; libibverbs sets this entry of the
    // classic table if the provider does not (mana allocates windows, but cannot bind them).
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

/// Returns the next key of a memory window of type 2: the low 8 bits are incremented and wrap.
#[inline]
pub const fn ibv_inc_rkey(rkey: u32) -> u32 {
    (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff)
}
