//! What asynchronous events are about.

use std::ffi::c_int;

use rdma_sys::{
    IBV_EVENT_COMM_EST, IBV_EVENT_CQ_ERR, IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR,
    IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED,
    IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SQ_DRAINED, IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED,
};

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Cq(usize),
    Qp(usize),
    Srq(usize),
    /// A port, or whatever else is a number.
    Number(c_int),
}

/// An event that nobody has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) event_type: u32,
    pub(crate) of: Of,
}

/// What events of a type are about.
pub(crate) fn of_type(event_type: u32) -> fn(usize) -> Of {
    match event_type {
        IBV_EVENT_CQ_ERR => Of::Cq,
        IBV_EVENT_QP_FATAL
        | IBV_EVENT_QP_REQ_ERR
        | IBV_EVENT_QP_ACCESS_ERR
        | IBV_EVENT_COMM_EST
        | IBV_EVENT_SQ_DRAINED
        | IBV_EVENT_PATH_MIG
        | IBV_EVENT_PATH_MIG_ERR
        | IBV_EVENT_QP_LAST_WQE_REACHED => Of::Qp,
        IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => Of::Srq,
        _ => |number| Of::Number(c_int::try_from(number).unwrap_or(-1)),
    }
}
