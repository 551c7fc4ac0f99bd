//! Transports as types: an operation that a transport lacks does not compile.

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
}

/// A transport: what a [`QueuePair`](crate::QueuePair) speaks.
pub trait Transport: private::Sealed + 'static {
    /// Its number.
    const QP_TYPE: QpType;
    /// The extended operations that a queue pair of it asks for (`IBV_QP_EX_WITH_*`).
    #[doc(hidden)]
    const SEND_OPS: u64;
}

/// Reliable connection: ordered, acknowledged, one peer.
#[derive(Clone, Copy, Debug)]
pub struct Rc;

impl Transport for Rc {
    const QP_TYPE: QpType = QpType::RC;
    const SEND_OPS: u64 = rdma_sys::IBV_QP_EX_WITH_SEND as u64 | rdma_sys::IBV_QP_EX_WITH_SEND_WITH_IMM as u64;
}
