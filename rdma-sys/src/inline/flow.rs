//! Flow steering, flow actions and counters.

use core::ffi::c_int;

use super::{unsupported, verbs_get_ctx_op};
use crate::{
    ibv_context, ibv_counter_attach_attr, ibv_counters, ibv_counters_init_attr, ibv_flow,
    ibv_flow_action, ibv_flow_action_esp_attr, ibv_flow_attr, ibv_qp,
};

/// Creates a flow rule that directs packets to a queue pair. Returns NULL and sets `errno` on
/// failure.
///
/// # Safety
/// `qp` must be live, and `flow` must be followed by as many specifications as it declares.
#[inline]
pub unsafe fn ibv_create_flow(qp: *mut ibv_qp, flow: *mut ibv_flow_attr) -> *mut ibv_flow {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*qp).context, ibv_create_flow) {
            Some(create_flow) => create_flow(qp, flow),
            None => unsupported(),
        }
    }
}

/// Removes a flow rule.
///
/// # Safety
/// `flow` must be live and must not be used after the call.
#[inline]
pub unsafe fn ibv_destroy_flow(flow: *mut ibv_flow) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*flow).context, ibv_destroy_flow) {
            Some(destroy_flow) => destroy_flow(flow),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Creates an IPsec ESP action. Returns NULL and sets `errno` on failure.
///
/// # Safety
/// `context` must be live and `esp` valid.
#[inline]
pub unsafe fn ibv_create_flow_action_esp(
    context: *mut ibv_context,
    esp: *mut ibv_flow_action_esp_attr,
) -> *mut ibv_flow_action {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!(context, create_flow_action_esp) {
            Some(create_flow_action_esp) => create_flow_action_esp(context, esp),
            None => unsupported(),
        }
    }
}

/// Changes an IPsec ESP action.
///
/// # Safety
/// `action` must be live and `esp` valid.
#[inline]
pub unsafe fn ibv_modify_flow_action_esp(
    action: *mut ibv_flow_action,
    esp: *mut ibv_flow_action_esp_attr,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*action).context, modify_flow_action_esp) {
            Some(modify_flow_action_esp) => modify_flow_action_esp(action, esp),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Destroys a flow action.
///
/// # Safety
/// `action` must be live and must not be used after the call.
#[inline]
pub unsafe fn ibv_destroy_flow_action(action: *mut ibv_flow_action) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*action).context, destroy_flow_action) {
            Some(destroy_flow_action) => destroy_flow_action(action),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Creates a set of counters. Returns NULL and sets `errno` on failure.
///
/// # Safety
/// `context` must be live and `attr` readable.
#[inline]
pub unsafe fn ibv_create_counters(
    context: *mut ibv_context,
    attr: *mut ibv_counters_init_attr,
) -> *mut ibv_counters {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!(context, create_counters) {
            Some(create_counters) => create_counters(context, attr),
            None => unsupported(),
        }
    }
}

/// Destroys a set of counters.
///
/// # Safety
/// `counters` must be live and must not be used after the call.
#[inline]
pub unsafe fn ibv_destroy_counters(counters: *mut ibv_counters) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*counters).context, destroy_counters) {
            Some(destroy_counters) => destroy_counters(counters),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Attaches counters to a flow.
///
/// # Safety
/// `counters` and `flow` must be live and `attr` readable.
#[inline]
pub unsafe fn ibv_attach_counters_point_flow(
    counters: *mut ibv_counters,
    attr: *mut ibv_counter_attach_attr,
    flow: *mut ibv_flow,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*counters).context, attach_counters_point_flow) {
            Some(attach_counters_point_flow) => attach_counters_point_flow(counters, attr, flow),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Reads a set of counters.
///
/// # Safety
/// `counters` must be live and `values` writable for `ncounters`.
#[inline]
pub unsafe fn ibv_read_counters(
    counters: *mut ibv_counters,
    values: *mut u64,
    ncounters: u32,
    flags: u32,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!((*counters).context, read_counters) {
            Some(read_counters) => read_counters(counters, values, ncounters, flags),
            None => libc::EOPNOTSUPP,
        }
    }
}
