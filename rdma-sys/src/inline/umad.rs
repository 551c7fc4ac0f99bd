//! Buffers of management datagrams, and the packed fields of their records.

#![allow(
    clippy::cast_possible_truncation,
    reason = "each field has the width of its result"
)]

use core::ffi::{c_int, c_void};

use crate::{
    __be32, UMAD_CLASS_RESP_TIME_MASK, UMAD_SA_RATE_MTU_PKT_LIFE_MASK, UMAD_SA_SELECTOR_MASK,
    UMAD_SA_SELECTOR_SHIFT, umad_class_port_info, umad_sa_mcmember_record,
};

/// Allocates `num` zeroed buffers of `size` bytes: `umad_size()` plus the datagram. Returns NULL on
/// failure.
#[inline]
#[allow(
    clippy::cast_sign_loss,
    reason = "C converts it too: a negative number requests more memory than exists"
)]
pub fn umad_alloc(num: c_int, size: usize) -> *mut c_void {
    // SAFETY: calloc accepts any numbers.
    unsafe { libc::calloc(num as usize, size) }
}

/// Frees a buffer that [`umad_alloc`] allocated.
///
/// # Safety
/// `umad` must be NULL or a result of [`umad_alloc`], and must not be used after the call.
#[inline]
pub unsafe fn umad_free(umad: *mut c_void) {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe { libc::free(umad) }
}

/// Returns the second capability mask of a class.
#[inline]
pub const fn umad_class_cap_mask2(cpi: &umad_class_port_info) -> u32 {
    u32::from_be(cpi.cap_mask2_resp_time) >> 5
}

/// Returns the response time of a class.
#[inline]
pub const fn umad_class_resp_time(cpi: &umad_class_port_info) -> u8 {
    (u32::from_be(cpi.cap_mask2_resp_time) & UMAD_CLASS_RESP_TIME_MASK) as u8
}

/// Returns the rate, MTU or packet lifetime without its selector.
#[inline]
pub const fn umad_sa_get_rate_mtu_or_life(rate_mtu_or_life: u8) -> u8 {
    rate_mtu_or_life & UMAD_SA_RATE_MTU_PKT_LIFE_MASK as u8
}

/// Returns the rate, MTU or packet lifetime with its selector.
#[inline]
pub const fn umad_sa_set_rate_mtu_or_life(selector: u8, rate_mtu_or_life: u8) -> u8 {
    ((selector & UMAD_SA_SELECTOR_MASK as u8) << UMAD_SA_SELECTOR_SHIFT)
        | (rate_mtu_or_life & UMAD_SA_RATE_MTU_PKT_LIFE_MASK as u8)
}

/// Extracts the service level, flow label and hop limit. A pointer that is NULL skips its field.
///
/// # Safety
/// Each pointer must be NULL or writable.
#[inline]
pub unsafe fn umad_sa_mcm_get_sl_flow_hop(
    sl_flow_hop: __be32,
    sl: *mut u8,
    flow_label: *mut u32,
    hop: *mut u8,
) {
    let value = u32::from_be(sl_flow_hop);
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        if !hop.is_null() {
            *hop = value as u8;
        }
        if !flow_label.is_null() {
            *flow_label = (value >> 8) & 0xf_ffff;
        }
        if !sl.is_null() {
            *sl = (value >> 28) as u8;
        }
    }
}

/// Returns the packed service level, flow label and hop limit.
#[inline]
pub const fn umad_sa_mcm_set_sl_flow_hop(sl: u8, flow_label: u32, hop_limit: u8) -> __be32 {
    (((sl as u32) << 28) | ((flow_label & 0xf_ffff) << 8) | hop_limit as u32).to_be()
}

/// Extracts the scope and join state. A pointer that is NULL skips its field.
///
/// # Safety
/// Each pointer must be NULL or writable.
#[inline]
pub unsafe fn umad_sa_mcm_get_scope_state(scope_state: u8, scope: *mut u8, state: *mut u8) {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        if !state.is_null() {
            *state = scope_state & 0x0f;
        }
        if !scope.is_null() {
            *scope = scope_state >> 4;
        }
    }
}

/// Returns the packed scope and join state.
#[inline]
pub const fn umad_sa_mcm_set_scope_state(scope: u8, state: u8) -> u8 {
    (scope << 4) | state
}

/// Sets the join state of a multicast record and keeps its scope.
#[inline]
pub const fn umad_sa_mcm_set_join_state(record: &mut umad_sa_mcmember_record, state: u8) {
    record.scope_state = (record.scope_state & 0xf0) | (0x0f & state);
}

/// Returns 1 if another port joined the multicast group on behalf of this one, otherwise 0.
#[inline]
pub const fn umad_sa_mcm_get_proxy_join(record: &umad_sa_mcmember_record) -> c_int {
    (record.proxy_join & 0x80 == 0x80) as c_int
}
