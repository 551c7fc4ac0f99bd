//! The extended posting interface: `ibv_wr_start`, then an operation and its setters for each
//! request, then `ibv_wr_complete` or `ibv_wr_abort`. `wr_id` and `wr_flags` are fields of
//! `ibv_qp_ex`.

use core::ffi::{c_int, c_void};

use super::call;
use crate::{__be32, ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_sge};

macro_rules! writers {
    ($($(#[$doc:meta])* $name:ident: $entry:ident($($argument:ident: $kind:ty),*) $(-> $value:ty)?;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `qp` must be live, its `send_ops_flags` must contain the operation, and the provider
        /// must have set the function: some accept operations that they lack. The call must follow
        /// `ibv_wr_start` and precede `ibv_wr_complete` or `ibv_wr_abort`; `ibv_wr_start` itself
        /// must not be called within a batch. Pointers must be valid for the call, and memory that
        /// the request refers to must stay valid until it has completed.
        #[inline]
        pub unsafe fn $name(qp: *mut ibv_qp_ex, $($argument: $kind),*) $(-> $value)? {
            // SAFETY: the caller guarantees that the arguments are valid and that the provider has
            // set the function.
            unsafe { call!((*qp).$entry, qp, $($argument),*) }
        }
    )*};
}

/// An `ibv_qp_ex` with the function that newer releases append to it.
#[repr(C)]
struct QpExWithFlush {
    qp: ibv_qp_ex,
    wr_flush: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, usize, u8, u8)>,
}

/// Returns `true` if the provider has set the function that [`ibv_wr_flush`] calls.
///
/// # Safety
/// `qp` must be live and created with `IBV_QP_EX_WITH_FLUSH`. Then it belongs to a library that has
/// this function.
#[doc(hidden)]
pub unsafe fn has_wr_flush(qp: *const ibv_qp_ex) -> bool {
    // SAFETY: the caller guarantees that the structure has the field, because older libraries do
    // not create queue pairs with this operation.
    unsafe { (*qp.cast::<QpExWithFlush>()).wr_flush.is_some() }
}

/// Adds a FLUSH of the peer's memory: placement types (`IBV_FLUSH_*`) and selectivity level.
///
/// # Safety
/// The requirements are those of [`ibv_wr_send`]. A queue pair that was created with
/// `IBV_QP_EX_WITH_FLUSH` belongs to a library that has this function.
#[inline]
pub unsafe fn ibv_wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    len: usize,
    type_: u8,
    level: u8,
) {
    // SAFETY: the caller guarantees that the arguments are valid and that the structure has the
    // function, because older libraries do not create queue pairs with this operation.
    unsafe {
        call!(
            (*qp.cast::<QpExWithFlush>()).wr_flush,
            qp,
            rkey,
            remote_addr,
            len,
            type_,
            level
        );
    }
}

writers! {
    /// Starts a batch and takes the lock of the queue.
    ibv_wr_start: wr_start();
    /// Posts the batch and releases the lock. Returns 0, or an errno; then nothing was posted.
    ibv_wr_complete: wr_complete() -> c_int;
    /// Discards the batch and releases the lock.
    ibv_wr_abort: wr_abort();

    /// Adds a SEND.
    ibv_wr_send: wr_send();
    /// Adds a SEND with immediate data, in network byte order.
    ibv_wr_send_imm: wr_send_imm(imm_data: __be32);
    /// Adds a SEND that invalidates a key of the peer.
    ibv_wr_send_inv: wr_send_inv(invalidate_rkey: u32);
    /// Adds a segmented send on a raw packet queue pair: header and maximum segment size.
    ibv_wr_send_tso: wr_send_tso(hdr: *mut c_void, hdr_sz: u16, mss: u16);
    /// Adds an RDMA READ.
    ibv_wr_rdma_read: wr_rdma_read(rkey: u32, remote_addr: u64);
    /// Adds an RDMA WRITE.
    ibv_wr_rdma_write: wr_rdma_write(rkey: u32, remote_addr: u64);
    /// Adds an RDMA WRITE with immediate data, in network byte order.
    ibv_wr_rdma_write_imm: wr_rdma_write_imm(rkey: u32, remote_addr: u64, imm_data: __be32);
    /// Adds an atomic compare and swap of 8 bytes.
    ibv_wr_atomic_cmp_swp: wr_atomic_cmp_swp(rkey: u32, remote_addr: u64, compare: u64, swap: u64);
    /// Adds an atomic fetch and add of 8 bytes.
    ibv_wr_atomic_fetch_add: wr_atomic_fetch_add(rkey: u32, remote_addr: u64, add: u64);
    /// Adds an atomic write of the 8 bytes at `atomic_wr`.
    ibv_wr_atomic_write: wr_atomic_write(rkey: u32, remote_addr: u64, atomic_wr: *const c_void);
    /// Adds a bind of a memory window of type 2.
    ibv_wr_bind_mw: wr_bind_mw(mw: *mut ibv_mw, rkey: u32, bind_info: *const ibv_mw_bind_info);
    /// Adds an invalidation of a local key.
    ibv_wr_local_inv: wr_local_inv(invalidate_rkey: u32);

    /// Sets the destination of a UD request.
    ibv_wr_set_ud_addr: wr_set_ud_addr(ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32);
    /// Sets the shared receive queue of an XRC request.
    ibv_wr_set_xrc_srqn: wr_set_xrc_srqn(remote_srqn: u32);
    /// Sets the payload to a copy of one buffer.
    ibv_wr_set_inline_data: wr_set_inline_data(addr: *mut c_void, length: usize);
    /// Sets the payload to a copy of several buffers.
    ibv_wr_set_inline_data_list: wr_set_inline_data_list(num_buf: usize, buf_list: *const ibv_data_buf);
    /// Sets the payload to one scatter entry.
    ibv_wr_set_sge: wr_set_sge(lkey: u32, addr: u64, length: u32);
    /// Sets the payload to several scatter entries.
    ibv_wr_set_sge_list: wr_set_sge_list(num_sge: usize, sg_list: *const ibv_sge);
}
