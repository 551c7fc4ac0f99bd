//! `rdma_cma.h`, and of `rdma_verbs.h` registration and completions.

#![allow(
    clippy::cast_possible_wrap,
    reason = "C's functions disagree on the sign of access flags"
)]

use core::ffi::{c_int, c_void};

use libc::sockaddr;

use crate::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, ibv_access_flags,
    ibv_ack_cq_events, ibv_comp_channel, ibv_cq, ibv_dereg_mr, ibv_get_cq_event, ibv_mr,
    ibv_poll_cq, ibv_reg_mr, ibv_req_notify_cq, ibv_wc, rdma_cm_id,
};

/// The local address of an identifier, inside it.
///
/// # Safety
/// `id` must be live; the result is valid as long.
#[inline]
pub unsafe fn rdma_get_local_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: the caller's promise; a place inside `id`.
    unsafe { &raw mut (*id).route.addr.__bindgen_anon_1.src_addr }
}

/// The peer's address of an identifier, inside it.
///
/// # Safety
/// `id` must be live; the result is valid as long.
#[inline]
pub unsafe fn rdma_get_peer_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: the caller's promise; a place inside `id`.
    unsafe { &raw mut (*id).route.addr.__bindgen_anon_2.dst_addr }
}

/// Turns the convention "0 or an errno" into "0, or −1 and errno".
#[inline]
pub fn rdma_seterrno(ret: c_int) -> c_int {
    if ret == 0 {
        return 0;
    }
    // SAFETY: the thread's own errno is always valid.
    unsafe { *libc::__errno_location() = ret };
    -1
}

/// # Safety
/// As for [`ibv_reg_mr`].
unsafe fn register(
    id: *mut rdma_cm_id,
    addr: *mut c_void,
    length: usize,
    access: ibv_access_flags,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    unsafe { ibv_reg_mr((*id).pd, addr, length, access as c_int) }
}

/// Registers memory to send from and receive into; NULL and errno on failure.
///
/// # Safety
/// `id` must be live with a protection domain; the rest as for [`ibv_reg_mr`].
#[inline]
pub unsafe fn rdma_reg_msgs(id: *mut rdma_cm_id, addr: *mut c_void, length: usize) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    unsafe { register(id, addr, length, IBV_ACCESS_LOCAL_WRITE) }
}

/// Registers memory that the peer may read; NULL and errno on failure.
///
/// # Safety
/// As for [`rdma_reg_msgs`].
#[inline]
pub unsafe fn rdma_reg_read(id: *mut rdma_cm_id, addr: *mut c_void, length: usize) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    unsafe {
        register(
            id,
            addr,
            length,
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
        )
    }
}

/// Registers memory that the peer may write; NULL and errno on failure.
///
/// # Safety
/// As for [`rdma_reg_msgs`].
#[inline]
pub unsafe fn rdma_reg_write(id: *mut rdma_cm_id, addr: *mut c_void, length: usize) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    unsafe {
        register(
            id,
            addr,
            length,
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
        )
    }
}

/// Deregisters memory; −1 and errno on failure.
///
/// # Safety
/// `mr` must be live, and is not afterwards.
#[inline]
pub unsafe fn rdma_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller's promise.
    rdma_seterrno(unsafe { ibv_dereg_mr(mr) })
}

/// # Safety
/// `cq` and `channel` must be live, `channel` that of `cq`, and `wc` writable.
unsafe fn completion(cq: *mut ibv_cq, channel: *mut ibv_comp_channel, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let polled = loop {
            let ret = ibv_poll_cq(cq, 1, wc);
            if ret != 0 {
                break ret;
            }
            let ret = ibv_req_notify_cq(cq, 0);
            if ret != 0 {
                return rdma_seterrno(ret);
            }
            let ret = ibv_poll_cq(cq, 1, wc);
            if ret != 0 {
                break ret;
            }
            let mut woken = core::ptr::null_mut();
            let mut context = core::ptr::null_mut();
            let ret = ibv_get_cq_event(channel, &raw mut woken, &raw mut context);
            if ret != 0 {
                return ret;
            }
            debug_assert!(woken == cq, "an event of another queue");
            ibv_ack_cq_events(cq, 1);
        };
        if polled < 0 {
            rdma_seterrno(polled)
        } else {
            polled
        }
    }
}

/// Waits for a completion of the identifier's send queue; 1, or −1 and errno.
///
/// # Safety
/// `id` must be live with a queue pair of its own making, and `wc` writable.
#[inline]
pub unsafe fn rdma_get_send_comp(id: *mut rdma_cm_id, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { completion((*id).send_cq, (*id).send_cq_channel, wc) }
}

/// Waits for a completion of the identifier's receive queue; 1, or −1 and errno.
///
/// # Safety
/// As for [`rdma_get_send_comp`].
#[inline]
pub unsafe fn rdma_get_recv_comp(id: *mut rdma_cm_id, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { completion((*id).recv_cq, (*id).recv_cq_channel, wc) }
}
