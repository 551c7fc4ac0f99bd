//! A test that a provider has set the functions that post requests with the extended verbs.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use rdma_sys::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_QP_EX_WITH_BIND_MW, IBV_QP_EX_WITH_FLUSH,
    IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM,
    IBV_QP_EX_WITH_SEND_WITH_INV, has_wr_flush, ibv_qp_ex,
};

use crate::transport::Transport;

/// Returns `true` if the provider has set each function that requests of these operations call.
///
/// Posting does not test it. A provider can accept operations that it lacks, as bnxt_re does
/// (ci/provider_functions.md).
///
/// # Safety
/// The queue pair is alive and was created with the operations.
pub(super) unsafe fn are_set(qp: NonNull<ibv_qp_ex>, transport: Transport, ops: u64) -> bool {
    let requests = |op: u32| ops & u64::from(op) != 0;
    // SAFETY: guaranteed by the caller.
    let has_flush = !requests(IBV_QP_EX_WITH_FLUSH) || unsafe { has_wr_flush(qp.as_ptr()) };
    // SAFETY: guaranteed by the caller. Only creation writes to the table.
    let table = unsafe { qp.as_ref() };
    let address = match transport {
        Transport::Ud | Transport::Srd => table.wr_set_ud_addr.is_some(),
        Transport::XrcSend => table.wr_set_xrc_srqn.is_some(),
        // Those of a DC initiator are functions of libmlx5, which always sets them.
        _ => true,
    };
    let setters = [
        address,
        table.wr_set_sge.is_some(),
        table.wr_set_sge_list.is_some(),
        table.wr_set_inline_data.is_some(),
    ];
    let operations = [
        (IBV_QP_EX_WITH_SEND, table.wr_send.is_some()),
        (IBV_QP_EX_WITH_SEND_WITH_IMM, table.wr_send_imm.is_some()),
        (IBV_QP_EX_WITH_SEND_WITH_INV, table.wr_send_inv.is_some()),
        (IBV_QP_EX_WITH_RDMA_WRITE, table.wr_rdma_write.is_some()),
        (
            IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
            table.wr_rdma_write_imm.is_some(),
        ),
        (IBV_QP_EX_WITH_RDMA_READ, table.wr_rdma_read.is_some()),
        (
            IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
            table.wr_atomic_cmp_swp.is_some(),
        ),
        (
            IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
            table.wr_atomic_fetch_add.is_some(),
        ),
        (IBV_QP_EX_WITH_ATOMIC_WRITE, table.wr_atomic_write.is_some()),
        (IBV_QP_EX_WITH_BIND_MW, table.wr_bind_mw.is_some()),
        (IBV_QP_EX_WITH_LOCAL_INV, table.wr_local_inv.is_some()),
        (IBV_QP_EX_WITH_FLUSH, has_flush),
    ];
    setters.into_iter().all(|is_set| is_set)
        && operations
            .into_iter()
            .all(|(op, is_set)| is_set || !requests(op))
}
