//! The posting functions of `rdma_verbs.h`: each posts one request on an identifier's queue pair.

#![allow(
    clippy::cast_possible_truncation,
    reason = "the C functions also truncate lengths to the 32 bits of a scatter entry"
)]
#![allow(
    clippy::cast_sign_loss,
    reason = "the C functions disagree on the sign of send flags"
)]
#![allow(
    clippy::too_many_arguments,
    reason = "the C functions have the same parameters"
)]

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use crate::{
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND, RDMA_UDP_QKEY, ibv_ah, ibv_mr, ibv_post_recv,
    ibv_post_send, ibv_post_srq_recv, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wr_opcode, rdma_cm_id,
    rdma_seterrno,
};

/// # Safety
/// `mr` must be live or NULL.
unsafe fn entry(addr: *mut c_void, length: usize, mr: *mut ibv_mr) -> ibv_sge {
    let lkey = if mr.is_null() {
        0
    } else {
        // SAFETY: the caller guarantees that the arguments are valid.
        unsafe { (*mr).lkey }
    };
    ibv_sge {
        addr: addr.expose_provenance() as u64,
        length: length as u32,
        lkey,
    }
}

fn request(
    context: *mut c_void,
    sgl: *mut ibv_sge,
    nsge: c_int,
    opcode: ibv_wr_opcode,
    flags: c_int,
) -> ibv_send_wr {
    ibv_send_wr {
        wr_id: context.expose_provenance() as u64,
        sg_list: sgl,
        num_sge: nsge,
        opcode,
        send_flags: flags as u32,
        ..Default::default()
    }
}

/// # Safety
/// `id` must be live and have a queue pair, and `wr` must be valid.
unsafe fn post(id: *mut rdma_cm_id, mut wr: ibv_send_wr) -> c_int {
    let mut bad = null_mut();
    // SAFETY: the caller guarantees that the arguments are valid.
    rdma_seterrno(unsafe { ibv_post_send((*id).qp, &raw mut wr, &raw mut bad) })
}

/// Posts a receive with several scatter entries. Returns −1 and sets `errno` on failure.
///
/// # Safety
/// `id` must be live and have a queue pair, and `sgl` must be readable for `nsge` entries. The
/// memory that they refer to must stay valid until the request has completed.
#[inline]
pub unsafe fn rdma_post_recvv(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    sgl: *mut ibv_sge,
    nsge: c_int,
) -> c_int {
    let mut wr = ibv_recv_wr {
        wr_id: context.expose_provenance() as u64,
        next: null_mut(),
        sg_list: sgl,
        num_sge: nsge,
    };
    let mut bad = null_mut();
    // SAFETY: the caller guarantees that the arguments are valid.
    rdma_seterrno(unsafe {
        if (*id).srq.is_null() {
            ibv_post_recv((*id).qp, &raw mut wr, &raw mut bad)
        } else {
            ibv_post_srq_recv((*id).srq, &raw mut wr, &raw mut bad)
        }
    })
}

/// Posts a send with several scatter entries. Returns −1 and sets `errno` on failure.
///
/// # Safety
/// The requirements are those of [`rdma_post_recvv`].
#[inline]
pub unsafe fn rdma_post_sendv(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    sgl: *mut ibv_sge,
    nsge: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe { post(id, request(context, sgl, nsge, IBV_WR_SEND, flags)) }
}

/// Posts an RDMA READ with several scatter entries. Returns −1 and sets `errno` on failure.
///
/// # Safety
/// The requirements are those of [`rdma_post_recvv`].
#[inline]
pub unsafe fn rdma_post_readv(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    sgl: *mut ibv_sge,
    nsge: c_int,
    flags: c_int,
    remote_addr: u64,
    rkey: u32,
) -> c_int {
    let mut wr = request(context, sgl, nsge, IBV_WR_RDMA_READ, flags);
    wr.wr.rdma.remote_addr = remote_addr;
    wr.wr.rdma.rkey = rkey;
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe { post(id, wr) }
}

/// Posts an RDMA WRITE with several scatter entries. Returns −1 and sets `errno` on failure.
///
/// # Safety
/// The requirements are those of [`rdma_post_recvv`].
#[inline]
pub unsafe fn rdma_post_writev(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    sgl: *mut ibv_sge,
    nsge: c_int,
    flags: c_int,
    remote_addr: u64,
    rkey: u32,
) -> c_int {
    let mut wr = request(context, sgl, nsge, IBV_WR_RDMA_WRITE, flags);
    wr.wr.rdma.remote_addr = remote_addr;
    wr.wr.rdma.rkey = rkey;
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe { post(id, wr) }
}

/// Posts a receive. Returns −1 and sets `errno` on failure.
///
/// # Safety
/// The requirements are those of [`rdma_post_recvv`]. In addition, `mr` must be live and cover the
/// memory.
#[inline]
pub unsafe fn rdma_post_recv(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    addr: *mut c_void,
    length: usize,
    mr: *mut ibv_mr,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        debug_assert!(
            addr >= (*mr).addr && addr.addr() + length <= (*mr).addr.addr() + (*mr).length,
            "the memory is outside the region"
        );
        let mut sge = entry(addr, length, mr);
        rdma_post_recvv(id, context, &raw mut sge, 1)
    }
}

/// Posts a send; `mr` may be NULL for inline data. Returns −1 and sets `errno` on failure.
///
/// # Safety
/// The requirements are those of [`rdma_post_recvv`]. In addition, `mr` must be NULL or live.
#[inline]
pub unsafe fn rdma_post_send(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    addr: *mut c_void,
    length: usize,
    mr: *mut ibv_mr,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        let mut sge = entry(addr, length, mr);
        rdma_post_sendv(id, context, &raw mut sge, 1, flags)
    }
}

/// Posts an RDMA READ. Returns −1 and sets `errno` on failure.
///
/// # Safety
/// The requirements are those of [`rdma_post_recvv`]. In addition, `mr` must be live.
#[inline]
pub unsafe fn rdma_post_read(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    addr: *mut c_void,
    length: usize,
    mr: *mut ibv_mr,
    flags: c_int,
    remote_addr: u64,
    rkey: u32,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        let mut sge = entry(addr, length, mr);
        rdma_post_readv(id, context, &raw mut sge, 1, flags, remote_addr, rkey)
    }
}

/// Posts an RDMA WRITE; `mr` may be NULL for inline data. Returns −1 and sets `errno` on failure.
///
/// # Safety
/// The requirements are those of [`rdma_post_recvv`]. In addition, `mr` must be NULL or live.
#[inline]
pub unsafe fn rdma_post_write(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    addr: *mut c_void,
    length: usize,
    mr: *mut ibv_mr,
    flags: c_int,
    remote_addr: u64,
    rkey: u32,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        let mut sge = entry(addr, length, mr);
        rdma_post_writev(id, context, &raw mut sge, 1, flags, remote_addr, rkey)
    }
}

/// Posts a datagram; `mr` may be NULL for inline data. Returns −1 and sets `errno` on failure.
///
/// # Safety
/// The requirements are those of [`rdma_post_recvv`]. In addition, `mr` must be NULL or live, and
/// `ah` must be live.
#[inline]
pub unsafe fn rdma_post_ud_send(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    addr: *mut c_void,
    length: usize,
    mr: *mut ibv_mr,
    flags: c_int,
    ah: *mut ibv_ah,
    remote_qpn: u32,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        let mut sge = entry(addr, length, mr);
        let mut wr = request(context, &raw mut sge, 1, IBV_WR_SEND, flags);
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = remote_qpn;
        wr.wr.ud.remote_qkey = RDMA_UDP_QKEY;
        post(id, wr)
    }
}
