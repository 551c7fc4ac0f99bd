//! Functions of `rdma_cma.h`, and the registration and completion functions of `rdma_verbs.h`.

#![allow(
    clippy::cast_possible_wrap,
    reason = "the C functions disagree on the sign of access flags"
)]

use core::ffi::{c_int, c_void};

use libc::sockaddr;

use crate::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, ibv_access_flags,
    ibv_ack_cq_events, ibv_comp_channel, ibv_cq, ibv_dereg_mr, ibv_get_cq_event, ibv_mr,
    ibv_poll_cq, ibv_reg_mr, ibv_req_notify_cq, ibv_wc, rdma_cm_id,
};

/// Returns a pointer to the local address inside an identifier.
///
/// # Safety
/// `id` must be live. The pointer is valid as long as `id` is.
#[inline]
pub unsafe fn rdma_get_local_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: the caller guarantees that `id` is live.
    unsafe { &raw mut (*id).route.addr.__bindgen_anon_1.src_addr }
}

/// Returns a pointer to the peer's address inside an identifier.
///
/// # Safety
/// `id` must be live. The pointer is valid as long as `id` is.
#[inline]
pub unsafe fn rdma_get_peer_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: the caller guarantees that `id` is live.
    unsafe { &raw mut (*id).route.addr.__bindgen_anon_2.dst_addr }
}

/// Converts the convention "0, or an errno" to "0, or −1 and `errno`".
#[inline]
pub fn rdma_seterrno(ret: c_int) -> c_int {
    if ret == 0 {
        return 0;
    }
    // SAFETY: the location belongs to the calling thread and is always valid.
    unsafe { *libc::__errno_location() = ret };
    -1
}

/// # Safety
/// The requirements are those of [`ibv_reg_mr`].
unsafe fn register(
    id: *mut rdma_cm_id,
    addr: *mut c_void,
    length: usize,
    access: ibv_access_flags,
) -> *mut ibv_mr {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe { ibv_reg_mr((*id).pd, addr, length, access as c_int) }
}

/// Registers memory for sends and receives. Returns NULL and sets `errno` on failure.
///
/// # Safety
/// `id` must be live and have a protection domain. The other requirements are those of
/// [`ibv_reg_mr`].
#[inline]
pub unsafe fn rdma_reg_msgs(id: *mut rdma_cm_id, addr: *mut c_void, length: usize) -> *mut ibv_mr {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe { register(id, addr, length, IBV_ACCESS_LOCAL_WRITE) }
}

/// Registers memory that the peer may read. Returns NULL and sets `errno` on failure.
///
/// # Safety
/// The requirements are those of [`rdma_reg_msgs`].
#[inline]
pub unsafe fn rdma_reg_read(id: *mut rdma_cm_id, addr: *mut c_void, length: usize) -> *mut ibv_mr {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        register(
            id,
            addr,
            length,
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
        )
    }
}

/// Registers memory that the peer may write. Returns NULL and sets `errno` on failure.
///
/// # Safety
/// The requirements are those of [`rdma_reg_msgs`].
#[inline]
pub unsafe fn rdma_reg_write(id: *mut rdma_cm_id, addr: *mut c_void, length: usize) -> *mut ibv_mr {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        register(
            id,
            addr,
            length,
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
        )
    }
}

/// Deregisters memory. Returns −1 and sets `errno` on failure.
///
/// # Safety
/// `mr` must be live and must not be used after the call.
#[inline]
pub unsafe fn rdma_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    rdma_seterrno(unsafe { ibv_dereg_mr(mr) })
}

/// # Safety
/// `cq` must be live, `channel` must be its channel, and `wc` must be writable.
unsafe fn wait_for_completion(
    cq: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
    wc: *mut ibv_wc,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
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
            let mut notified = core::ptr::null_mut();
            let mut context = core::ptr::null_mut();
            let ret = ibv_get_cq_event(channel, &raw mut notified, &raw mut context);
            if ret != 0 {
                return ret;
            }
            debug_assert!(notified == cq, "the event belongs to another queue");
            ibv_ack_cq_events(cq, 1);
        };
        if polled < 0 {
            rdma_seterrno(polled)
        } else {
            polled
        }
    }
}

/// Waits for a completion of the identifier's send queue. Returns 1, or −1 and sets `errno`.
///
/// # Safety
/// `id` must be live with a queue pair that librdmacm created, and `wc` must be writable.
#[inline]
pub unsafe fn rdma_get_send_comp(id: *mut rdma_cm_id, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe { wait_for_completion((*id).send_cq, (*id).send_cq_channel, wc) }
}

/// Waits for a completion of the identifier's receive queue. Returns 1, or −1 and sets `errno`.
///
/// # Safety
/// The requirements are those of [`rdma_get_send_comp`].
#[inline]
pub unsafe fn rdma_get_recv_comp(id: *mut rdma_cm_id, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe { wait_for_completion((*id).recv_cq, (*id).recv_cq_channel, wc) }
}
