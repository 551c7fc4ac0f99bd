//! Transports as types: an operation that a transport lacks does not compile.

use rdma_sys::{
    IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER,
    IBV_QP_PATH_MTU, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
};

use crate::newtype::c_value;

c_value! {
    /// The type of a queue pair (`enum ibv_qp_type`).
    pub struct QpType(u32) {
        /// Reliable connection.
        RC = rdma_sys::IBV_QPT_RC => "RC",
        /// Unreliable connection.
        UC = rdma_sys::IBV_QPT_UC => "UC",
        /// Unreliable datagram.
        UD = rdma_sys::IBV_QPT_UD => "UD",
        /// Raw packets.
        RAW_PACKET = rdma_sys::IBV_QPT_RAW_PACKET => "RAW_PACKET",
        /// Extended reliable connection, sending half.
        XRC_SEND = rdma_sys::IBV_QPT_XRC_SEND => "XRC_SEND",
        /// Extended reliable connection, receiving half.
        XRC_RECV = rdma_sys::IBV_QPT_XRC_RECV => "XRC_RECV",
    }
}

mod private {
    pub trait Sealed {}
    impl Sealed for super::Rc {}
    impl Sealed for super::Uc {}
    impl Sealed for super::Ud {}
}

/// A transport: what a [`QueuePair`](crate::QueuePair) speaks.
pub trait Transport: private::Sealed + 'static {
    /// Its number.
    const QP_TYPE: QpType;
    /// The extended operations that a queue pair of it asks for (`IBV_QP_EX_WITH_*`).
    #[doc(hidden)]
    const SEND_OPS: u64;
    /// Those that it asks for too, and does without where the provider lacks them.
    #[doc(hidden)]
    const EXTRA_OPS: u64 = 0;
}

const MESSAGES: u64 = rdma_sys::IBV_QP_EX_WITH_SEND as u64 | rdma_sys::IBV_QP_EX_WITH_SEND_WITH_IMM as u64;
const WINDOWS: u64 = rdma_sys::IBV_QP_EX_WITH_BIND_MW as u64
    | rdma_sys::IBV_QP_EX_WITH_LOCAL_INV as u64
    | rdma_sys::IBV_QP_EX_WITH_SEND_WITH_INV as u64;
const WRITES: u64 = rdma_sys::IBV_QP_EX_WITH_RDMA_WRITE as u64 | rdma_sys::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM as u64;
const FETCHES: u64 = rdma_sys::IBV_QP_EX_WITH_RDMA_READ as u64
    | rdma_sys::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP as u64
    | rdma_sys::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD as u64;

/// A transport with one peer, connected through RTR to RTS.
pub trait Connected: Transport {
    /// What the step to RTR needs (`enum ibv_qp_attr_mask`; IBA table 91).
    #[doc(hidden)]
    const RTR_MASK: u32;
    /// What the step to RTS needs.
    #[doc(hidden)]
    const RTS_MASK: u32;
}

const TO_RTR: u32 = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
const TO_RTS: u32 = IBV_QP_STATE | IBV_QP_SQ_PSN;

/// Reliable connection: ordered, acknowledged, one peer.
#[derive(Clone, Copy, Debug)]
pub struct Rc;

impl Transport for Rc {
    const QP_TYPE: QpType = QpType::RC;
    const SEND_OPS: u64 = MESSAGES | WRITES | FETCHES;
    const EXTRA_OPS: u64 = WINDOWS;
}

impl Connected for Rc {
    const RTR_MASK: u32 = TO_RTR | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    const RTS_MASK: u32 = TO_RTS | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
}

/// Unreliable connection: ordered, not acknowledged, one peer. What is lost is lost whole messages.
#[derive(Clone, Copy, Debug)]
pub struct Uc;

impl Transport for Uc {
    const QP_TYPE: QpType = QpType::UC;
    const SEND_OPS: u64 = MESSAGES | WRITES;
    const EXTRA_OPS: u64 = WINDOWS;
}

impl Connected for Uc {
    const RTR_MASK: u32 = TO_RTR;
    const RTS_MASK: u32 = TO_RTS;
}

/// Unreliable datagram: messages of one packet, to and from anyone.
#[derive(Clone, Copy, Debug)]
pub struct Ud;

impl Transport for Ud {
    const QP_TYPE: QpType = QpType::UD;
    const SEND_OPS: u64 = MESSAGES;
}
