//! Queue pairs. The functions of the extended posting interface are in `wr.rs`.

use core::ffi::c_int;

use super::{call, unsupported, verbs_get_ctx_op};
use crate::{
    IBV_QP_INIT_ATTR_PD, ibv_context, ibv_create_qp, ibv_qp, ibv_qp_init_attr_ex, ibv_qp_open_attr,
    ibv_qp_rate_limit_attr, ibv_qp_type, ibv_recv_wr, ibv_send_wr,
};

/// Posts a list of send requests. Returns 0, or an errno; then `bad_wr` points to the first
/// request that was not posted.
///
/// # Safety
/// `qp` must be live, the list must be valid and `bad_wr` writable. The memory that the requests
/// refer to must stay valid until they have completed.
#[inline]
pub unsafe fn ibv_post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid; libibverbs sets this entry of
    // the classic table if the provider does not.
    unsafe { call!((*(*qp).context).ops.post_send, qp, wr, bad_wr) }
}

/// Posts a list of receive requests. Returns 0, or an errno; then `bad_wr` points to the first
/// request that was not posted.
///
/// # Safety
/// The requirements are those of [`ibv_post_send`].
#[inline]
pub unsafe fn ibv_post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid; libibverbs sets this entry of
    // the classic table if the provider does not.
    unsafe { call!((*(*qp).context).ops.post_recv, qp, wr, bad_wr) }
}

/// Creates a queue pair with extended attributes. Returns NULL and sets `errno` on failure.
///
/// # Safety
/// `context` must be live. `attr` must be valid, and every object that it refers to must be live.
#[inline]
pub unsafe fn ibv_create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller guarantees that the arguments are valid. The extended attributes begin
    // with the classic ones.
    unsafe {
        if (*attr).comp_mask == IBV_QP_INIT_ATTR_PD {
            return ibv_create_qp((*attr).pd, attr.cast());
        }
        match verbs_get_ctx_op!(context, create_qp_ex) {
            Some(create_qp_ex) => create_qp_ex(context, attr),
            None => unsupported(),
        }
    }
}

/// Opens an XRC receive queue pair that another process shares. Returns NULL and sets `errno` on
/// failure.
///
/// # Safety
/// `context` must be live. `attr` must be valid, and every object that it refers to must be live.
#[inline]
pub unsafe fn ibv_open_qp(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!(context, open_qp) {
            Some(open_qp) => open_qp(context, attr),
            None => unsupported(),
        }
    }
}

/// Sets the rate limit of a queue pair.
///
/// # Safety
/// `qp` must be live and `attr` readable.
#[inline]
pub unsafe fn ibv_modify_qp_rate_limit(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_rate_limit_attr,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*qp).context, modify_qp_rate_limit) {
            Some(modify_qp_rate_limit) => modify_qp_rate_limit(qp, attr),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Returns 1 if the capability mask `supported_qpts` contains a type of queue pair, otherwise 0.
/// `IBV_QPT_DRIVER` has no bit in the mask.
#[inline]
pub const fn ibv_is_qpt_supported(caps: u32, qpt: ibv_qp_type) -> c_int {
    (qpt < u32::BITS && caps >> qpt & 1 == 1) as c_int
}
