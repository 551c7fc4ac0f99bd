//! Indices stored in C handles. An index selects the object in `DeviceState`.

use rdma_sys::{ibv_ah, ibv_context, ibv_cq, ibv_mw, ibv_pd, ibv_qp, ibv_srq};

/// Returns the index of a context.
///
/// # Safety
/// The context is valid.
pub(crate) unsafe fn context(context: *mut ibv_context) -> usize {
    // SAFETY: the caller's promise.
    usize::try_from(unsafe { (*context).cmd_fd }).unwrap_or(usize::MAX)
}

/// Returns the index of a protection domain.
///
/// # Safety
/// The domain is valid.
pub(crate) unsafe fn pd(pd: *mut ibv_pd) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*pd).handle as usize }
}

/// Returns the index of a completion queue.
///
/// # Safety
/// The queue is valid.
#[inline]
pub(crate) unsafe fn cq(cq: *mut ibv_cq) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*cq).handle as usize }
}

/// Returns the index of a shared receive queue.
///
/// # Safety
/// The queue is valid.
pub(crate) unsafe fn srq(srq: *mut ibv_srq) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*srq).handle as usize }
}

/// Number of the first shared receive queue of an XRC domain.
const FIRST_SRQ: u32 = 0x900;

/// Returns the number of a shared receive queue, which XRC requests carry.
pub(crate) fn srq_num(index: usize) -> u32 {
    FIRST_SRQ + u32::try_from(index).unwrap_or(0)
}

/// Returns the index of the shared receive queue with this number.
pub(crate) fn srq_index(index: u32) -> Option<usize> {
    index.checked_sub(FIRST_SRQ).map(|index| index as usize)
}

/// Returns the index of an address handle.
///
/// # Safety
/// The address handle is valid.
pub(crate) unsafe fn ah(ah: *mut ibv_ah) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*ah).handle as usize }
}

/// Returns the index of a memory window.
///
/// # Safety
/// The window is valid.
pub(crate) unsafe fn mw(mw: *mut ibv_mw) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*mw).handle as usize }
}

/// Returns the index of a queue pair.
///
/// # Safety
/// The queue pair is valid.
#[inline]
pub(crate) unsafe fn qp(qp: *mut ibv_qp) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*qp).handle as usize }
}

/// Number of the first queue pair.
const FIRST: u32 = 0x11;

/// Returns the queue pair number (`qp_num`) for an index.
pub(crate) fn qp_num(slot: usize) -> u32 {
    FIRST + u32::try_from(slot).unwrap_or(0)
}

/// Returns the index for a queue pair number (`qp_num`).
pub(crate) fn qp_index(index: u32) -> Option<usize> {
    index.checked_sub(FIRST).map(|slot| slot as usize)
}
