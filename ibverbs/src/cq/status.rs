//! What a completion says: status, opcode, flags.

use crate::identity::Direction;
use rdma_types::c_value;

c_value! {
    /// How a work request ended (`enum ibv_wc_status`).
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Retired, WcStatus};
    /// # fn f(retired: Retired) -> ibverbs::Result<()> {
    /// match retired.status() {
    ///     WcStatus::SUCCESS => {}
    ///     WcStatus::WR_FLUSH_ERR => println!("the queue pair was already in error"),
    ///     _ => retired.ok()?, // says the status and its usual causes
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html); IBA 11.6.2
    pub struct WcStatus(u32) {
        /// It did what was asked.
        SUCCESS = rdma_sys::IBV_WC_SUCCESS => "success",
        /// The receive buffer was too small, or a local length is wrong.
        LOC_LEN_ERR = rdma_sys::IBV_WC_LOC_LEN_ERR => "local length error",
        /// An internal error of the queue pair.
        LOC_QP_OP_ERR = rdma_sys::IBV_WC_LOC_QP_OP_ERR => "local QP operation error",
        /// An internal error of the end-to-end context.
        LOC_EEC_OP_ERR = rdma_sys::IBV_WC_LOC_EEC_OP_ERR => "local EE context operation error",
        /// A local buffer is not registered for what was asked.
        LOC_PROT_ERR = rdma_sys::IBV_WC_LOC_PROT_ERR => "local protection error",
        /// The queue pair went to the error state before the request was done.
        WR_FLUSH_ERR = rdma_sys::IBV_WC_WR_FLUSH_ERR => "work request flushed",
        /// A memory window could not be bound.
        MW_BIND_ERR = rdma_sys::IBV_WC_MW_BIND_ERR => "memory window bind error",
        /// The response was not what the request allows.
        BAD_RESP_ERR = rdma_sys::IBV_WC_BAD_RESP_ERR => "bad response",
        /// Local memory refused access to a remote operation.
        LOC_ACCESS_ERR = rdma_sys::IBV_WC_LOC_ACCESS_ERR => "local access error",
        /// The peer found the request invalid: for example a message longer than its receive buffer.
        REM_INV_REQ_ERR = rdma_sys::IBV_WC_REM_INV_REQ_ERR => "remote invalid request",
        /// The peer's memory is not open to what was asked.
        REM_ACCESS_ERR = rdma_sys::IBV_WC_REM_ACCESS_ERR => "remote access error",
        /// The peer failed to do it.
        REM_OP_ERR = rdma_sys::IBV_WC_REM_OP_ERR => "remote operation error",
        /// The peer did not answer: gone, unreachable, or not yet ready to receive.
        RETRY_EXC_ERR = rdma_sys::IBV_WC_RETRY_EXC_ERR => "transport retries exceeded",
        /// The peer had no receive posted for too long.
        RNR_RETRY_EXC_ERR = rdma_sys::IBV_WC_RNR_RETRY_EXC_ERR => "receiver-not-ready retries exceeded",
        /// Local RDD violation.
        LOC_RDD_VIOL_ERR = rdma_sys::IBV_WC_LOC_RDD_VIOL_ERR => "local RDD violation",
        /// Remote invalid RD request.
        REM_INV_RD_REQ_ERR = rdma_sys::IBV_WC_REM_INV_RD_REQ_ERR => "remote invalid RD request",
        /// The operation was aborted.
        REM_ABORT_ERR = rdma_sys::IBV_WC_REM_ABORT_ERR => "remote aborted",
        /// Invalid EE context number.
        INV_EECN_ERR = rdma_sys::IBV_WC_INV_EECN_ERR => "invalid EE context number",
        /// Invalid EE context state.
        INV_EEC_STATE_ERR = rdma_sys::IBV_WC_INV_EEC_STATE_ERR => "invalid EE context state",
        /// A fatal error of the device.
        FATAL_ERR = rdma_sys::IBV_WC_FATAL_ERR => "fatal error",
        /// The response did not come in time.
        RESP_TIMEOUT_ERR = rdma_sys::IBV_WC_RESP_TIMEOUT_ERR => "response timeout",
        /// Any other error.
        GENERAL_ERR = rdma_sys::IBV_WC_GENERAL_ERR => "general error",
        /// A tag-matching error.
        TM_ERR = rdma_sys::IBV_WC_TM_ERR => "tag matching error",
        /// A tag-matching rendezvous that software must finish.
        TM_RNDV_INCOMPLETE = rdma_sys::IBV_WC_TM_RNDV_INCOMPLETE => "tag matching rendezvous incomplete",
    }
}

impl WcStatus {
    /// Whether the request did what was asked.
    pub const fn is_success(self) -> bool {
        self.0 == Self::SUCCESS.0
    }

    /// Returns the remedy for the usual cause of this status.
    pub(crate) fn help(self, direction: Direction) -> Option<&'static str> {
        Some(match self {
            Self::REM_INV_REQ_ERR if direction == Direction::Recv => {
                "the message invalidates what is no bound window of type 2, or is longer than the receive buffer"
            }
            Self::LOC_LEN_ERR => "a message was longer than the receive buffer",
            Self::WR_FLUSH_ERR => "the connection ended, or an earlier request failed",
            Self::REM_INV_REQ_ERR => "is the peer's receive buffer as large as the message?",
            Self::RETRY_EXC_ERR => {
                "the peer does not answer: is it there, is the path (MTU, UDP port 4791) open?"
            }
            Self::RNR_RETRY_EXC_ERR => "the peer posted no receive in time",
            _ => return None,
        })
    }
}

c_value! {
    /// What kind of request completed (`enum ibv_wc_opcode`); valid for a success only.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Retired, WcOpcode};
    /// # fn f(retired: Retired) {
    /// if retired.is_success() && retired.opcode() == WcOpcode::RECV_RDMA_WITH_IMM {
    ///     println!("the peer has written, and says {:?}", retired.imm_data());
    /// }
    /// # }
    /// ```
    ///
    /// # References
    /// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)
    pub struct WcOpcode(u32) {
        /// A send was taken.
        SEND = rdma_sys::IBV_WC_SEND => "send",
        /// An RDMA write was done.
        RDMA_WRITE = rdma_sys::IBV_WC_RDMA_WRITE => "RDMA write",
        /// An RDMA read was done.
        RDMA_READ = rdma_sys::IBV_WC_RDMA_READ => "RDMA read",
        /// A compare-and-swap was done.
        COMP_SWAP = rdma_sys::IBV_WC_COMP_SWAP => "compare and swap",
        /// A fetch-and-add was done.
        FETCH_ADD = rdma_sys::IBV_WC_FETCH_ADD => "fetch and add",
        /// A memory window was bound.
        BIND_MW = rdma_sys::IBV_WC_BIND_MW => "bind memory window",
        /// A key was invalidated.
        LOCAL_INV = rdma_sys::IBV_WC_LOCAL_INV => "local invalidate",
        /// A segmented send was done.
        TSO = rdma_sys::IBV_WC_TSO => "TSO",
        /// A message was received.
        RECV = rdma_sys::IBV_WC_RECV => "receive",
        /// A peer's RDMA write with immediate took a receive.
        RECV_RDMA_WITH_IMM = rdma_sys::IBV_WC_RECV_RDMA_WITH_IMM => "RDMA write with immediate received",
    }
}
