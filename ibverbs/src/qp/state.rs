//! The states of a queue pair.

use crate::newtype::c_value;

c_value! {
    /// The state of a queue pair (`enum ibv_qp_state`).
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QpState, QueuePair, Rc};
    /// # fn f(qp: &QueuePair<Rc>) -> ibverbs::Result<()> {
    /// let can_send = qp.state()? == QpState::RTS;
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); IBA 10.3.1
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
