//! Queue pairs and completion queues of any kind, and posting requests through them. The actions
//! use these types; the model has only their queues and memory.

mod cq;
mod payload;
mod qp;

pub(crate) use self::cq::{AnyCq, new_runtime};
pub(crate) use self::payload::{Payload, post};
pub(crate) use self::qp::{
    AnyQp, Fetch, Flags, Operation, Outbound, Transport, fetch, with_connected, with_datagram,
    with_qp,
};
