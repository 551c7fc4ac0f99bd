//! What the handles that a program holds say: the number, in the device's world, of what they stand
//! for.

use rdma_sys::{ibv_ah, ibv_context, ibv_cq, ibv_mw, ibv_pd, ibv_qp, ibv_srq};

/// The number of an opening.
///
/// # Safety
/// The context is alive.
pub(crate) unsafe fn context(context: *mut ibv_context) -> usize {
    // SAFETY: the caller's promise.
    usize::try_from(unsafe { (*context).cmd_fd }).unwrap_or(usize::MAX)
}

/// The number of a domain.
///
/// # Safety
/// The domain is alive.
pub(crate) unsafe fn pd(pd: *mut ibv_pd) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*pd).handle as usize }
}

/// The number of a completion queue.
///
/// # Safety
/// The queue is alive.
#[inline]
pub(crate) unsafe fn cq(cq: *mut ibv_cq) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*cq).handle as usize }
}

/// The number of a shared receive queue.
///
/// # Safety
/// The queue is alive.
pub(crate) unsafe fn srq(srq: *mut ibv_srq) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*srq).handle as usize }
}

/// The number by which requests name the first shared receive queue of an XRC domain.
const FIRST_SRQ: u32 = 0x900;

/// The number by which requests name a shared receive queue, by its own number.
pub(crate) fn srq_number_of(number: usize) -> u32 {
    FIRST_SRQ + u32::try_from(number).unwrap_or(0)
}

/// The number of the shared receive queue that requests name so.
pub(crate) fn srq_of(number: u32) -> Option<usize> {
    number.checked_sub(FIRST_SRQ).map(|number| number as usize)
}

/// The number of an address handle.
///
/// # Safety
/// The address handle is alive.
pub(crate) unsafe fn ah(ah: *mut ibv_ah) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*ah).handle as usize }
}

/// The number of a memory window.
///
/// # Safety
/// The window is alive.
pub(crate) unsafe fn mw(mw: *mut ibv_mw) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*mw).handle as usize }
}

/// The place of a queue pair.
///
/// # Safety
/// The queue pair is alive.
#[inline]
pub(crate) unsafe fn qp(qp: *mut ibv_qp) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*qp).handle as usize }
}

/// The number of the first queue pair.
const FIRST: u32 = 0x11;

/// `qp_num` of a queue pair by its place.
pub(crate) fn number_of(place: usize) -> u32 {
    FIRST + u32::try_from(place).unwrap_or(0)
}

/// The place of the queue pair with this `qp_num`.
pub(crate) fn place_of(number: u32) -> Option<usize> {
    number.checked_sub(FIRST).map(|place| place as usize)
}
