//! The states of a queue pair.

use crate::newtype::c_value;

c_value! {
    /// The state of a queue pair (`enum ibv_qp_state`).
    pub struct QpState(u32) {
        /// Fresh.
        RESET = rdma_sys::IBV_QPS_RESET => "RESET",
        /// Receives may be posted.
        INIT = rdma_sys::IBV_QPS_INIT => "INIT",
        /// Ready to receive.
        RTR = rdma_sys::IBV_QPS_RTR => "RTR",
        /// Ready to send.
        RTS = rdma_sys::IBV_QPS_RTS => "RTS",
        /// The send queue is drained.
        SQD = rdma_sys::IBV_QPS_SQD => "SQD",
        /// The send queue is in error.
        SQE = rdma_sys::IBV_QPS_SQE => "SQE",
        /// In error: what is in flight is flushed.
        ERR = rdma_sys::IBV_QPS_ERR => "ERR",
        /// Not known.
        UNKNOWN = rdma_sys::IBV_QPS_UNKNOWN => "UNKNOWN",
    }
}
