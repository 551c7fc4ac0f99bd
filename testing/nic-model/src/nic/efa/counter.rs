//! Completion counters. The adapter writes each count to memory of the program
//! (`efa_create_comp_cntr` and `efa_qp_attach_comp_cntr` of the patches of Linux's driver).

use super::Efa;
use super::descriptor::{Status, operation};
use crate::abi::efa::{BUFFER_VA, BufferDesc, COMP_CNTR_BUFFERS};
use crate::attr::Attrs;
use crate::errno::{Errno, Result};
use crate::memory::{self, Pinned};
use crate::nic::{CompCntrCaps, CounterChange};

/// Maximum number of counters. The driver takes it from the adapter, so it is an example.
pub(super) const MAX_COUNTERS: u32 = 256;
/// Largest count. The next one is 0.
const MAX_VALUE: u64 = (1 << 40) - 1;

/// Operations that a counter can count (`ib_uverbs_qp_attach_comp_cntr_op`).
mod op {
    pub(super) const SEND: u32 = 1;
    pub(super) const RECV: u32 = 1 << 1;
    pub(super) const RDMA_READ: u32 = 1 << 2;
    pub(super) const REMOTE_RDMA_READ: u32 = 1 << 3;
}
const SUPPORTED: u32 = op::SEND | op::RECV | op::RDMA_READ | op::REMOTE_RDMA_READ;

pub(super) const CAPS: CompCntrCaps = CompCntrCaps {
    max_counters: MAX_COUNTERS,
    max_value: MAX_VALUE,
    qp_attach_ops: SUPPORTED,
};

/// The memory of the counts of successes and of failures.
#[derive(Clone, Copy)]
pub(super) struct Counter([Pinned; 2]);

/// An event at a queue pair that counters count.
#[derive(Clone, Copy)]
pub(super) enum Event {
    /// A request of the send queue has completed.
    Sent { operation: u8, status: Status },
    /// A receive request has completed.
    Received { status: Status },
    /// A peer has read memory.
    Read,
}

impl Event {
    /// Returns the operation, and `true` if it failed.
    fn counts(self) -> (u32, bool) {
        match self {
            Self::Sent { operation, status } => {
                let op = match operation {
                    operation::RDMA_READ => op::RDMA_READ,
                    _ => op::SEND,
                };
                (op, status != Status::Ok)
            }
            Self::Received { status } => (op::RECV, status != Status::Ok),
            Self::Read => (op::REMOTE_RDMA_READ, false),
        }
    }
}

impl Counter {
    fn change(self, failures: bool, change: impl Fn(u64) -> u64) {
        self.0[usize::from(failures)].update_u64(|count| Some(change(count)));
    }
}

/// Returns the sum of two counts, which wraps to 0 above the largest one.
fn add(count: u64, amount: u64) -> u64 {
    count.wrapping_add(amount) & MAX_VALUE
}

impl Efa {
    pub(super) fn new_counter(&mut self, attrs: &Attrs) -> Result<u32> {
        let memory = |id| {
            let buffer: BufferDesc = attrs.read_whole(id, Errno::EINVAL)?;
            if buffer.kind != BUFFER_VA || buffer.flags != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            if buffer.length < 8 || !buffer.address.is_multiple_of(8) {
                return Err(Errno::EINVAL);
            }
            memory::pin(buffer.address, 8, true)
        };
        let [successes, failures] = COMP_CNTR_BUFFERS;
        self.counters
            .insert(Counter([memory(successes)?, memory(failures)?]))
    }

    pub(super) fn change_counter(&self, number: u32, change: CounterChange) -> Result<()> {
        let counter = self.counters.get(number).ok_or(Errno::EINVAL)?;
        if change.value > MAX_VALUE {
            return Err(Errno::EINVAL);
        }
        counter.change(change.failures, |count| {
            add(if change.adds { count } else { 0 }, change.value)
        });
        Ok(())
    }

    /// Attaches a counter, with the checks of the manual page.
    pub(super) fn attach(&mut self, number: u32, counter: u32, ops: u32) -> Result<()> {
        let counter = *self.counters.get(counter).ok_or(Errno::EINVAL)?;
        let qp = self.qps.get_mut(number).ok_or(Errno::EINVAL)?;
        if ops & !SUPPORTED != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if qp.counters.iter().any(|(other, _)| other & ops != 0) {
            return Err(Errno::EBUSY);
        }
        if !qp.can_attach() {
            return Err(Errno::EINVAL);
        }
        qp.counters.push((ops, counter));
        Ok(())
    }
}

/// Counts an event in the counters of a queue pair.
pub(super) fn count(counters: &[(u32, Counter)], event: Event) {
    let (op, failed) = event.counts();
    for (_, counter) in counters.iter().filter(|(ops, _)| ops & op != 0) {
        counter.change(failed, |count| add(count, 1));
    }
}
