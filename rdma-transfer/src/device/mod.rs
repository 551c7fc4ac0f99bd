//! Devices, and the queue pairs of paths on them.

pub(crate) mod nic;
mod qp;
pub(crate) mod queue;

use crate::memory::region::RegionMemory;
use crate::protocol::{path, records, work};

pub(crate) type Event = records::Event<RegionMemory>;
pub(crate) type Job = work::Job<RegionMemory>;
pub(crate) type Path = path::Path<queue::Queue, RegionMemory>;
pub(crate) type PeerTransfer = work::PeerTransfer<RegionMemory>;
pub(crate) type Records = records::Records<RegionMemory>;
pub(crate) type Step = path::Step<queue::Queue, RegionMemory>;
pub(crate) type Waiting = work::Waiting<RegionMemory>;
