//! Shared receive queues.

use core::ffi::c_int;

use super::{call, unsupported, verbs_get_ctx_op};
use crate::{
    IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_BASIC, ibv_context, ibv_create_srq,
    ibv_ops_wr, ibv_recv_wr, ibv_srq, ibv_srq_init_attr_ex,
};

/// Posts a list of receive requests. Returns 0, or an errno; then `bad_wr` points to the first
/// request that was not posted.
///
/// # Safety
/// `srq` must be live, the list must be valid and `bad_wr` writable. The memory that the requests
/// refer to must stay valid until they have completed.
#[inline]
pub unsafe fn ibv_post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid; libibverbs sets this entry of
    // the classic table if the provider does not.
    unsafe { call!((*(*srq).context).ops.post_srq_recv, srq, wr, bad_wr) }
}

/// Posts a list of tag-matching operations. Returns 0, or an errno; then `bad_op` points to the
/// first operation that was not posted.
///
/// # Safety
/// The requirements are those of [`ibv_post_srq_recv`].
#[inline]
pub unsafe fn ibv_post_srq_ops(
    srq: *mut ibv_srq,
    op: *mut ibv_ops_wr,
    bad_op: *mut *mut ibv_ops_wr,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        if let Some(post_srq_ops) = verbs_get_ctx_op!((*srq).context, post_srq_ops) {
            post_srq_ops(srq, op, bad_op)
        } else {
            *bad_op = op;
            libc::EOPNOTSUPP
        }
    }
}

/// Creates a shared receive queue with extended attributes. Returns NULL and sets `errno` on
/// failure.
///
/// # Safety
/// `context` must be live. `attr` must be valid, and every object that it refers to must be live.
#[inline]
pub unsafe fn ibv_create_srq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the caller guarantees that the arguments are valid. The extended attributes begin
    // with the classic ones.
    unsafe {
        let mask = (*attr).comp_mask;
        if mask & !(IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE) == 0
            && mask & IBV_SRQ_INIT_ATTR_PD != 0
            && (mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || (*attr).srq_type == IBV_SRQT_BASIC)
        {
            return ibv_create_srq((*attr).pd, attr.cast());
        }
        match verbs_get_ctx_op!(context, create_srq_ex) {
            Some(create_srq_ex) => create_srq_ex(context, attr),
            None => unsupported(),
        }
    }
}

/// Queries the number of a shared receive queue, which XRC requests contain.
///
/// # Safety
/// `srq` must be live and `srq_num` writable.
#[inline]
pub unsafe fn ibv_get_srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*srq).context, get_srq_num) {
            Some(get_srq_num) => get_srq_num(srq, srq_num),
            None => libc::EOPNOTSUPP,
        }
    }
}
