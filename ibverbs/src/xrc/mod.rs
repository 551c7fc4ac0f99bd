//! Extended reliable connections (XRC): receiving halves, and shared receive queues with a number.
//!
//! Built on queue pairs, shared receive queues and [`XrcDomain`].

mod recv_qp;
mod srq;

pub use self::recv_qp::XrcRecvQueuePair;
pub use crate::numbers::SrqNum;
pub use crate::pd::{XrcDomain, XrcdOpen};
pub use crate::srq::Xrc;
pub use crate::transport::XrcSend;
