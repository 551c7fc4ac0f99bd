//! The states of a queue pair.

use rdma_types::c_value;

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
    #[doc(alias = "ibv_modify_qp")]
    pub struct QpState(u32) {
        /// The initial state.
        RESET = rdma_sys::IBV_QPS_RESET => "RESET",
        /// Initialized: receives can be posted.
        INIT = rdma_sys::IBV_QPS_INIT => "INIT",
        /// Ready to receive.
        RTR = rdma_sys::IBV_QPS_RTR => "RTR",
        /// Ready to send.
        RTS = rdma_sys::IBV_QPS_RTS => "RTS",
        /// Send queue drained, or being drained.
        SQD = rdma_sys::IBV_QPS_SQD => "SQD",
        /// Send queue error (UC and UD).
        SQE = rdma_sys::IBV_QPS_SQE => "SQE",
        /// Error: requests in flight are flushed.
        ERR = rdma_sys::IBV_QPS_ERR => "ERR",
        /// Unknown.
        UNKNOWN = rdma_sys::IBV_QPS_UNKNOWN => "UNKNOWN",
    }
}
