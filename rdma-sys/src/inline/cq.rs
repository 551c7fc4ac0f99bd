//! Completion queues, classic and extended. Reading an extended completion is in `wc.rs`.

use core::ffi::c_int;

use super::{call, unsupported, verbs_get_ctx_op};
use crate::{
    ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_modify_cq_attr, ibv_poll_cq_attr,
    ibv_wc,
};

/// Polls for at most `num_entries` completions; their number, or negative on error.
///
/// # Safety
/// `cq` must be live and `wc` writable for `num_entries`.
#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: libibverbs fills every entry of the classic table.
    unsafe { call!((*(*cq).context).ops.poll_cq, cq, num_entries, wc) }
}

/// Asks for one event on the queue's channel at the next completion, or the next solicited one.
///
/// # Safety
/// `cq` must be live.
#[inline]
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: libibverbs fills every entry of the classic table.
    unsafe { call!((*(*cq).context).ops.req_notify_cq, cq, solicited_only) }
}

/// Creates an extended completion queue; NULL and errno on failure.
///
/// # Safety
/// `context` must be live, and `cq_attr` valid with every object it names live.
#[inline]
pub unsafe fn ibv_create_cq_ex(
    context: *mut ibv_context,
    cq_attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the caller's promise.
    unsafe {
        match verbs_get_ctx_op!(context, create_cq_ex) {
            Some(create_cq_ex) => create_cq_ex(context, cq_attr),
            None => unsupported(),
        }
    }
}

/// Changes a queue's moderation.
///
/// # Safety
/// `cq` must be live and `attr` readable.
#[inline]
pub unsafe fn ibv_modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match verbs_get_ctx_op!((*cq).context, modify_cq) {
            Some(modify_cq) => modify_cq(cq, attr),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// The classic view of an extended queue, which begins as one.
#[inline]
pub const fn ibv_cq_ex_to_cq(cq: *mut ibv_cq_ex) -> *mut ibv_cq {
    cq.cast()
}

/// Begins a batch of polling and moves to its first completion; ENOENT if there is none, and then
/// no `ibv_end_poll`.
///
/// # Safety
/// `cq` must be live, with no poll of it begun, and `attr` readable.
#[inline]
pub unsafe fn ibv_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: every extended queue has the polling functions.
    unsafe { call!((*cq).start_poll, cq, attr) }
}

/// Moves to the next completion; ENOENT if there is none. `ibv_end_poll` must follow in either
/// case.
///
/// # Safety
/// `cq` must be live, with a poll of it begun.
#[inline]
pub unsafe fn ibv_next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: every extended queue has the polling functions.
    unsafe { call!((*cq).next_poll, cq) }
}

/// Ends a batch of polling.
///
/// # Safety
/// `cq` must be live, with a poll of it begun.
#[inline]
pub unsafe fn ibv_end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: every extended queue has the polling functions.
    unsafe { call!((*cq).end_poll, cq) }
}
