//! Classic and extended completion queues. The functions that read a completion of an extended
//! queue are in `wc.rs`.

use core::ffi::c_int;

use super::{call, unsupported, verbs_get_ctx_op};
use crate::{
    ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_modify_cq_attr, ibv_poll_cq_attr,
    ibv_wc,
};

/// Polls for at most `num_entries` completions. Returns their number, or a negative value on error.
///
/// # Safety
/// `cq` must be live and `wc` writable for `num_entries`.
#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid; libibverbs sets this entry of
    // the classic table if the provider does not.
    unsafe { call!((*(*cq).context).ops.poll_cq, cq, num_entries, wc) }
}

/// Requests one event on the queue's channel for the next completion, or the next solicited one.
///
/// # Safety
/// `cq` must be live.
#[inline]
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid; libibverbs sets this entry of
    // the classic table if the provider does not.
    unsafe { call!((*(*cq).context).ops.req_notify_cq, cq, solicited_only) }
}

/// Creates an extended completion queue. Returns NULL and sets `errno` on failure.
///
/// # Safety
/// `context` must be live. `cq_attr` must be valid, and every object that it refers to must be
/// live.
#[inline]
pub unsafe fn ibv_create_cq_ex(
    context: *mut ibv_context,
    cq_attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!(context, create_cq_ex) {
            Some(create_cq_ex) => create_cq_ex(context, cq_attr),
            None => unsupported(),
        }
    }
}

/// Sets the moderation of a queue's events.
///
/// # Safety
/// `cq` must be live and `attr` readable.
#[inline]
pub unsafe fn ibv_modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*cq).context, modify_cq) {
            Some(modify_cq) => modify_cq(cq, attr),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Returns the classic queue that an extended queue begins with.
#[inline]
pub const fn ibv_cq_ex_to_cq(cq: *mut ibv_cq_ex) -> *mut ibv_cq {
    cq.cast()
}

/// Starts a batch of polling and moves to its first completion. Returns ENOENT if there is none;
/// then `ibv_end_poll` must not be called.
///
/// # Safety
/// `cq` must be live with no batch started, and `attr` must be readable.
#[inline]
pub unsafe fn ibv_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the caller guarantees that `cq` is live; every provider of extended queues sets their
    // polling functions.
    unsafe { call!((*cq).start_poll, cq, attr) }
}

/// Moves to the next completion. Returns ENOENT if there is none. `ibv_end_poll` must follow in
/// both cases.
///
/// # Safety
/// `cq` must be live with a batch started.
#[inline]
pub unsafe fn ibv_next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller guarantees that `cq` is live; every provider of extended queues sets their
    // polling functions.
    unsafe { call!((*cq).next_poll, cq) }
}

/// Ends a batch of polling.
///
/// # Safety
/// `cq` must be live with a batch started.
#[inline]
pub unsafe fn ibv_end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the caller guarantees that `cq` is live; every provider of extended queues sets their
    // polling functions.
    unsafe { call!((*cq).end_poll, cq) }
}
