//! Work queues outside a queue pair, and the indirection tables that distribute packets to them.

use core::ffi::c_int;

use super::{unsupported, verbs_get_ctx_op};
use crate::{
    ibv_context, ibv_recv_wr, ibv_rwq_ind_table, ibv_rwq_ind_table_init_attr, ibv_wq, ibv_wq_attr,
    ibv_wq_init_attr,
};

/// Creates a work queue. Returns NULL and sets `errno` on failure.
///
/// # Safety
/// `context` must be live. `attr` must be valid, and every object that it refers to must be live.
#[inline]
pub unsafe fn ibv_create_wq(context: *mut ibv_context, attr: *mut ibv_wq_init_attr) -> *mut ibv_wq {
    // SAFETY: the caller guarantees that the arguments are valid. The provider leaves the fields
    // below to the header's function, which initializes them.
    unsafe {
        let Some(create_wq) = verbs_get_ctx_op!(context, create_wq) else {
            return unsupported();
        };
        let wq = create_wq(context, attr);
        if !wq.is_null() {
            (*wq).wq_context = (*attr).wq_context;
            (*wq).events_completed = 0;
            libc::pthread_mutex_init(&raw mut (*wq).mutex, core::ptr::null());
            libc::pthread_cond_init(&raw mut (*wq).cond, core::ptr::null());
        }
        wq
    }
}

/// Changes a work queue's attributes.
///
/// # Safety
/// `wq` must be live and `attr` readable.
#[inline]
pub unsafe fn ibv_modify_wq(wq: *mut ibv_wq, attr: *mut ibv_wq_attr) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*wq).context, modify_wq) {
            Some(modify_wq) => modify_wq(wq, attr),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Destroys a work queue.
///
/// # Safety
/// `wq` must be live and must not be used after the call.
#[inline]
pub unsafe fn ibv_destroy_wq(wq: *mut ibv_wq) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*wq).context, destroy_wq) {
            Some(destroy_wq) => destroy_wq(wq),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Posts a list of receive requests. Returns 0, or an errno; then `bad_wr` points to the first
/// request that was not posted. Returns EOPNOTSUPP if the provider (mana) has not set the function,
/// unlike the header's function.
///
/// # Safety
/// `wq` must be live, the list must be valid and `bad_wr` writable. The memory that the requests
/// refer to must stay valid until they have completed.
#[inline]
pub unsafe fn ibv_post_wq_recv(
    wq: *mut ibv_wq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        if let Some(post_recv) = (*wq).post_recv {
            post_recv(wq, wr, bad_wr)
        } else {
            *bad_wr = wr;
            libc::EOPNOTSUPP
        }
    }
}

/// Creates an indirection table. Returns NULL and sets `errno` on failure.
///
/// # Safety
/// `context` must be live. `attr` must be valid, and every queue that it refers to must be live.
#[inline]
pub unsafe fn ibv_create_rwq_ind_table(
    context: *mut ibv_context,
    attr: *mut ibv_rwq_ind_table_init_attr,
) -> *mut ibv_rwq_ind_table {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!(context, create_rwq_ind_table) {
            Some(create_rwq_ind_table) => create_rwq_ind_table(context, attr),
            None => unsupported(),
        }
    }
}

/// Destroys an indirection table.
///
/// # Safety
/// `table` must be live and must not be used after the call.
#[inline]
pub unsafe fn ibv_destroy_rwq_ind_table(table: *mut ibv_rwq_ind_table) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*table).context, destroy_rwq_ind_table) {
            Some(destroy_rwq_ind_table) => destroy_rwq_ind_table(table),
            None => libc::EOPNOTSUPP,
        }
    }
}
