//! Protection domains, completion queues and shared receive queues.

use ibverbs::{ProtectionDomain, SharedReceiveQueue};

use super::memory::Id;
use super::queue_pair::HeldModel;
use super::request::Entry;
use crate::transport::AnyCq;

#[derive(Clone)]
pub(crate) struct DomainModel {
    pub(crate) id: Id,
    pub(crate) pd: ProtectionDomain,
}

pub(crate) struct CqModel {
    pub(crate) id: Id,
    /// `None` while it is polled.
    pub(crate) cq: Option<AnyCq>,
}

pub(crate) struct SrqModel {
    pub(crate) id: Id,
    pub(crate) pd: Id,
    pub(crate) srq: SharedReceiveQueue,
    /// It can hold regions that are addressed from 0.
    pub(crate) device_addresses: bool,
    pub(crate) capacity: usize,
    pub(crate) recvs: Vec<Entry>,
    /// Receives that failed, whose buffers the device may still write.
    pub(crate) kept: Vec<Entry>,
    /// Sinks and shared regions that the queue holds.
    pub(crate) held: Vec<HeldModel>,
    /// Number of receives that have not been polled.
    pub(crate) unpolled: usize,
    /// Number of receives that destroyed queue pairs may have taken.
    pub(crate) lost: usize,
}
