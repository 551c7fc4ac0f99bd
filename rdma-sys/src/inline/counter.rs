//! Completion counters.

use core::ffi::c_int;

use crate::{_ibv_query_comp_cntr_caps, ibv_comp_cntr_caps, ibv_context};

/// Reads the limits of a device's completion counters. Returns 0, or an errno.
///
/// # Safety
/// `context` must be live and `caps` writable.
#[inline]
pub unsafe fn ibv_query_comp_cntr_caps(
    context: *mut ibv_context,
    caps: *mut ibv_comp_cntr_caps,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid. The size is that of the
    // structure.
    unsafe { _ibv_query_comp_cntr_caps(context, caps, size_of::<ibv_comp_cntr_caps>()) }
}
