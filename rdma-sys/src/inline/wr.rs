//! Posting by the extended interface: `ibv_wr_start`, then for each request its operation and its
//! setters, then `ibv_wr_complete` or `ibv_wr_abort`. `wr_id` and `wr_flags` are fields of
//! `ibv_qp_ex`.

use core::ffi::{c_int, c_void};

use super::call;
use crate::{__be32, ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_sge};

macro_rules! writers {
    ($($(#[$doc:meta])* $name:ident: $entry:ident($($argument:ident: $kind:ty),*) $(-> $value:ty)?;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `qp` must be live, made with the operation among its `send_ops_flags`, and between `ibv_wr_start` and
        /// `ibv_wr_complete` or `ibv_wr_abort` (`ibv_wr_start` itself: not). Pointers must be valid for the call, and
        /// memory that the request names must stay valid until it has completed.
        #[inline]
        pub unsafe fn $name(qp: *mut ibv_qp_ex, $($argument: $kind),*) $(-> $value)? {
            // SAFETY: a provider fills the operations that the queue pair was created with, and all the setters.
            unsafe { call!((*qp).$entry, qp, $($argument),*) }
        }
    )*};
}

writers! {
    /// Begins a batch, taking the queue's lock.
    ibv_wr_start: wr_start();
    /// Posts the batch and releases the lock; 0 or an errno, and then nothing of the batch was posted.
    ibv_wr_complete: wr_complete() -> c_int;
    /// Drops the batch and releases the lock.
    ibv_wr_abort: wr_abort();

    /// SEND.
    ibv_wr_send: wr_send();
    /// SEND with immediate data, in network byte order.
    ibv_wr_send_imm: wr_send_imm(imm_data: __be32);
    /// SEND that invalidates a key of the peer's.
    ibv_wr_send_inv: wr_send_inv(invalidate_rkey: u32);
    /// Segmented send of a raw packet queue: header and maximum segment size.
    ibv_wr_send_tso: wr_send_tso(hdr: *mut c_void, hdr_sz: u16, mss: u16);
    /// RDMA READ.
    ibv_wr_rdma_read: wr_rdma_read(rkey: u32, remote_addr: u64);
    /// RDMA WRITE.
    ibv_wr_rdma_write: wr_rdma_write(rkey: u32, remote_addr: u64);
    /// RDMA WRITE with immediate data, in network byte order.
    ibv_wr_rdma_write_imm: wr_rdma_write_imm(rkey: u32, remote_addr: u64, imm_data: __be32);
    /// Atomic compare and swap of 8 bytes.
    ibv_wr_atomic_cmp_swp: wr_atomic_cmp_swp(rkey: u32, remote_addr: u64, compare: u64, swap: u64);
    /// Atomic fetch and add of 8 bytes.
    ibv_wr_atomic_fetch_add: wr_atomic_fetch_add(rkey: u32, remote_addr: u64, add: u64);
    /// Atomic write of the 8 bytes at `atomic_wr`.
    ibv_wr_atomic_write: wr_atomic_write(rkey: u32, remote_addr: u64, atomic_wr: *const c_void);
    /// Binds a memory window of type 2.
    ibv_wr_bind_mw: wr_bind_mw(mw: *mut ibv_mw, rkey: u32, bind_info: *const ibv_mw_bind_info);
    /// Invalidates a key of this side's.
    ibv_wr_local_inv: wr_local_inv(invalidate_rkey: u32);

    /// Where a UD request goes.
    ibv_wr_set_ud_addr: wr_set_ud_addr(ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32);
    /// The shared receive queue that an XRC request goes to.
    ibv_wr_set_xrc_srqn: wr_set_xrc_srqn(remote_srqn: u32);
    /// Payload copied into the request.
    ibv_wr_set_inline_data: wr_set_inline_data(addr: *mut c_void, length: usize);
    /// Payload copied into the request from several places.
    ibv_wr_set_inline_data_list: wr_set_inline_data_list(num_buf: usize, buf_list: *const ibv_data_buf);
    /// Payload from one registered piece of memory.
    ibv_wr_set_sge: wr_set_sge(lkey: u32, addr: u64, length: u32);
    /// Payload from several registered pieces of memory.
    ibv_wr_set_sge_list: wr_set_sge_list(num_sge: usize, sg_list: *const ibv_sge);
}
