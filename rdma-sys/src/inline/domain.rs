//! XRC domains, thread domains and parent domains.

use core::ffi::c_int;

use super::{call, unsupported, verbs_get_ctx_op};
use crate::{
    ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr, ibv_xrcd,
    ibv_xrcd_init_attr, verbs_get_ctx,
};

/// Opens an XRC domain. Returns NULL and sets `errno` on failure.
///
/// # Safety
/// `context` must be live and `attr` readable.
#[inline]
pub unsafe fn ibv_open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!(context, open_xrcd) {
            Some(open_xrcd) => open_xrcd(context, attr),
            None => unsupported(),
        }
    }
}

/// Closes an XRC domain.
///
/// # Safety
/// `xrcd` must be live and must not be used after the call.
#[inline]
pub unsafe fn ibv_close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: the caller guarantees that the domain is live. Only a provider with an extended
    // context can open one, and libibverbs sets this entry if the provider does not.
    unsafe {
        let vctx = verbs_get_ctx((*xrcd).context);
        call!((*vctx).close_xrcd, xrcd)
    }
}

/// Allocates a thread domain. Returns NULL and sets `errno` on failure.
///
/// # Safety
/// `context` must be live and `attr` readable.
#[inline]
pub unsafe fn ibv_alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!(context, alloc_td) {
            Some(alloc_td) => alloc_td(context, attr),
            None => unsupported(),
        }
    }
}

/// Frees a thread domain.
///
/// # Safety
/// `td` must be live and must not be used after the call.
#[inline]
pub unsafe fn ibv_dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*td).context, dealloc_td) {
            Some(dealloc_td) => dealloc_td(td),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Allocates a parent domain. Returns NULL and sets `errno` on failure.
///
/// # Safety
/// `context` must be live. `attr` must be valid, and every object that it refers to must be live.
#[inline]
pub unsafe fn ibv_alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!(context, alloc_parent_domain) {
            Some(alloc_parent_domain) => alloc_parent_domain(context, attr),
            None => unsupported(),
        }
    }
}
