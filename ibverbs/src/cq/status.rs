//! Status and opcode of a completion.

use crate::identity::Direction;
use rdma_types::c_value;

c_value! {
    /// Status of a completed work request (`enum ibv_wc_status`).
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Retired, WcStatus};
    /// # fn f(retired: Retired) -> ibverbs::Result<()> {
    /// match retired.status() {
    ///     WcStatus::SUCCESS => {}
    ///     WcStatus::WR_FLUSH_ERR => println!("the queue pair was already in error"),
    ///     _ => retired.check()?, // an error with the status and a remedy
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html); IBA 11.6.2
    #[doc(alias = "ibv_poll_cq")]
    pub struct WcStatus(u32) {
        /// The request succeeded.
        SUCCESS = rdma_sys::IBV_WC_SUCCESS => "success",
        /// The receive buffer was too small, or the length of a local buffer is invalid.
        LOC_LEN_ERR = rdma_sys::IBV_WC_LOC_LEN_ERR => "local length error",
        /// Internal error of the queue pair.
        LOC_QP_OP_ERR = rdma_sys::IBV_WC_LOC_QP_OP_ERR => "local QP operation error",
        /// Internal error of the end-to-end context.
        LOC_EEC_OP_ERR = rdma_sys::IBV_WC_LOC_EEC_OP_ERR => "local EE context operation error",
        /// A local buffer is not registered, or not with the access that the request needs.
        LOC_PROT_ERR = rdma_sys::IBV_WC_LOC_PROT_ERR => "local protection error",
        /// The queue pair went to the error state before the request completed.
        WR_FLUSH_ERR = rdma_sys::IBV_WC_WR_FLUSH_ERR => "work request flushed",
        /// A memory window could not be bound.
        MW_BIND_ERR = rdma_sys::IBV_WC_MW_BIND_ERR => "memory window bind error",
        /// The peer sent a response that does not match the request.
        BAD_RESP_ERR = rdma_sys::IBV_WC_BAD_RESP_ERR => "bad response",
        /// A local buffer does not permit the access of the peer's RDMA write with immediate data.
        LOC_ACCESS_ERR = rdma_sys::IBV_WC_LOC_ACCESS_ERR => "local access error",
        /// The peer detected an invalid request, for example a message longer than the receive
        /// buffer.
        REM_INV_REQ_ERR = rdma_sys::IBV_WC_REM_INV_REQ_ERR => "remote invalid request",
        /// The peer's memory does not permit the access, or the range is out of bounds.
        REM_ACCESS_ERR = rdma_sys::IBV_WC_REM_ACCESS_ERR => "remote access error",
        /// The peer could not complete the operation.
        REM_OP_ERR = rdma_sys::IBV_WC_REM_OP_ERR => "remote operation error",
        /// The peer did not acknowledge the request: it is unreachable, or its queue pair was
        /// destroyed or is not ready to receive yet.
        RETRY_EXC_ERR = rdma_sys::IBV_WC_RETRY_EXC_ERR => "transport retries exceeded",
        /// The peer had no receive posted after all retries.
        RNR_RETRY_EXC_ERR = rdma_sys::IBV_WC_RNR_RETRY_EXC_ERR => "receiver-not-ready retries exceeded",
        /// The reliable datagram domains of the queue pair and the EE context differ.
        LOC_RDD_VIOL_ERR = rdma_sys::IBV_WC_LOC_RDD_VIOL_ERR => "local RDD violation",
        /// The peer detected an invalid reliable datagram request.
        REM_INV_RD_REQ_ERR = rdma_sys::IBV_WC_REM_INV_RD_REQ_ERR => "remote invalid RD request",
        /// The peer aborted the operation.
        REM_ABORT_ERR = rdma_sys::IBV_WC_REM_ABORT_ERR => "remote aborted",
        /// Invalid EE context number.
        INV_EECN_ERR = rdma_sys::IBV_WC_INV_EECN_ERR => "invalid EE context number",
        /// Invalid EE context state.
        INV_EEC_STATE_ERR = rdma_sys::IBV_WC_INV_EEC_STATE_ERR => "invalid EE context state",
        /// Fatal error of the device.
        FATAL_ERR = rdma_sys::IBV_WC_FATAL_ERR => "fatal error",
        /// No response arrived before the timeout.
        RESP_TIMEOUT_ERR = rdma_sys::IBV_WC_RESP_TIMEOUT_ERR => "response timeout",
        /// Any other error.
        GENERAL_ERR = rdma_sys::IBV_WC_GENERAL_ERR => "general error",
        /// Error of tag matching.
        TM_ERR = rdma_sys::IBV_WC_TM_ERR => "tag matching error",
        /// A tag-matching rendezvous that software must complete.
        TM_RNDV_INCOMPLETE = rdma_sys::IBV_WC_TM_RNDV_INCOMPLETE => "tag matching rendezvous incomplete",
    }
}

impl WcStatus {
    /// Returns `true` if the request succeeded.
    pub const fn is_success(self) -> bool {
        self.0 == Self::SUCCESS.0
    }

    /// Returns the remedy for the usual cause of this status.
    pub(crate) fn help(self, direction: Direction) -> Option<&'static str> {
        Some(match self {
            Self::REM_INV_REQ_ERR if direction == Direction::Recv => {
                "make the receive buffer at least as large as the message, and let the message \
                 invalidate only the remote key of a bound type 2 window"
            }
            Self::LOC_LEN_ERR => "make the receive buffer at least as large as the message",
            Self::WR_FLUSH_ERR if direction == Direction::Send => {
                "check if the connection ended or an earlier request failed; on iWARP, let the \
                 connecting side send first, and send from the accepting side after that message \
                 has arrived"
            }
            Self::WR_FLUSH_ERR => "check if the connection ended or an earlier request failed",
            Self::REM_INV_REQ_ERR => {
                "check that the peer's receive buffer is at least as large as the message"
            }
            Self::RETRY_EXC_ERR => {
                "check that the peer is running, and that the network passes packets of the path MTU \
                 and, for RoCE v2, UDP port 4791"
            }
            Self::RNR_RETRY_EXC_ERR => {
                "post receives on the peer before this side sends, or set `rnr_retry` higher"
            }
            _ => return None,
        })
    }
}

c_value! {
    /// Operation of a completed work request (`enum ibv_wc_opcode`). It is valid only if the
    /// request succeeded.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Retired, WcOpcode};
    /// # fn f(retired: Retired) {
    /// if retired.is_success() && retired.opcode() == WcOpcode::RECV_RDMA_WITH_IMM {
    ///     println!("RDMA write with immediate data {:?}", retired.imm_data());
    /// }
    /// # }
    /// ```
    #[doc(alias = "ibv_poll_cq")]
    pub struct WcOpcode(u32) {
        /// Send.
        SEND = rdma_sys::IBV_WC_SEND => "send",
        /// RDMA write.
        RDMA_WRITE = rdma_sys::IBV_WC_RDMA_WRITE => "RDMA write",
        /// RDMA read.
        RDMA_READ = rdma_sys::IBV_WC_RDMA_READ => "RDMA read",
        /// Atomic compare-and-swap.
        COMP_SWAP = rdma_sys::IBV_WC_COMP_SWAP => "compare and swap",
        /// Atomic fetch-and-add.
        FETCH_ADD = rdma_sys::IBV_WC_FETCH_ADD => "fetch and add",
        /// Bind of a memory window.
        BIND_MW = rdma_sys::IBV_WC_BIND_MW => "bind memory window",
        /// Invalidation of a local key.
        LOCAL_INV = rdma_sys::IBV_WC_LOCAL_INV => "local invalidate",
        /// Send with TCP segmentation offload.
        TSO = rdma_sys::IBV_WC_TSO => "TSO",
        /// Flush of the peer's memory.
        FLUSH = rdma_sys::IBV_WC_FLUSH => "flush",
        /// Atomic write.
        ATOMIC_WRITE = rdma_sys::IBV_WC_ATOMIC_WRITE => "atomic write",
        /// Receive of a message.
        RECV = rdma_sys::IBV_WC_RECV => "receive",
        /// Receive consumed by a peer's RDMA write with immediate data.
        RECV_RDMA_WITH_IMM = rdma_sys::IBV_WC_RECV_RDMA_WITH_IMM => "RDMA write with immediate received",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_failures_have_a_remedy() {
        use Direction::{Recv, Send};
        for (status, direction, expected) in [
            (WcStatus::REM_INV_REQ_ERR, Recv, "a bound type 2 window"),
            (WcStatus::REM_INV_REQ_ERR, Send, "the peer's receive buffer"),
            (WcStatus::LOC_LEN_ERR, Recv, "the receive buffer"),
            (WcStatus::WR_FLUSH_ERR, Send, "an earlier request failed"),
            (WcStatus::RETRY_EXC_ERR, Send, "the peer is running"),
            (WcStatus::RNR_RETRY_EXC_ERR, Send, "post receives"),
        ] {
            let help = status.help(direction).expect("a remedy");
            assert!(help.contains(expected), "{status}: {help}");
        }
        assert_eq!(WcStatus::GENERAL_ERR.help(Send), None);
    }
}
