//! The model of two connected queue pairs, and of their requests in flight.

use std::collections::VecDeque;
use std::fmt;

use ibverbs::{Frozen, Held, QueueId, RemoteMemory, SharedReceiveQueue, SharedRegion, Sink};

use crate::Violation;
use crate::any_cq::AnyCq;
use crate::any_qp::{AnyQp, with_qp};
use crate::memory::{BufModel, Effect, Id};
use crate::windows::{WindowModel, WindowRequest};

/// A request in flight.
pub(crate) struct Entry {
    pub(crate) tag: u64,
    pub(crate) what: &'static str,
    /// `false` for a request that retired before an older one.
    pub(crate) in_flight: bool,
    pub(crate) bufs: Vec<BufModel>,
    pub(crate) is_list: bool,
    pub(crate) effects: Vec<Effect>,
    /// Bytes that the request writes to its buffer.
    pub(crate) fetched: Option<Vec<u8>>,
    /// Number of bytes that a receive takes.
    pub(crate) capacity: usize,
    pub(crate) window: Option<WindowRequest>,
}

/// Takes the request at `position` out of its queue. Its place is kept until all older requests
/// have retired.
pub(crate) fn take_in_flight(queue: &mut VecDeque<Entry>, position: usize) -> Entry {
    let blank = Entry {
        in_flight: false,
        ..Entry::without_memory(queue[position].tag, "retired")
    };
    let entry = std::mem::replace(&mut queue[position], blank);
    while queue.front().is_some_and(|entry| !entry.in_flight) {
        queue.pop_front();
    }
    entry
}

impl Entry {
    /// Creates a request without memory.
    pub(crate) fn without_memory(tag: u64, what: &'static str) -> Self {
        Self {
            tag,
            what,
            in_flight: true,
            bufs: Vec::new(),
            is_list: false,
            effects: Vec::new(),
            fetched: None,
            capacity: 0,
            window: None,
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.tag)?;
        for BufModel { pool, len, .. } in &self.bufs {
            write!(f, ", {len} bytes of pool {pool}")?;
        }
        self.effects
            .iter()
            .try_for_each(|effect| write!(f, ", {effect:?}"))
    }
}

/// A message to be received.
pub(crate) struct Message {
    pub(crate) bytes: Vec<u8>,
    pub(crate) imm: Option<u32>,
    /// `false` for an RDMA WRITE, which writes no receive buffer.
    pub(crate) in_buffer: bool,
    /// The request that bound the window which the message invalidates.
    pub(crate) invalidates: Option<u64>,
    pub(crate) len: usize,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, immediate data {:?}", self.len, self.imm)
    }
}

/// Memory that a queue pair holds.
#[derive(Clone, Copy)]
pub(crate) enum HeldModel {
    Frozen(Held<Frozen>, Id, BufModel),
    Shared(Held<SharedRegion>, Id),
    Sink(Held<Sink>),
}

pub(crate) struct End {
    pub(crate) qp: AnyQp,
    pub(crate) id: QueueId,
    pub(crate) qp_num: u32,
    pub(crate) pd: Id,
    pub(crate) send_cq: Id,
    pub(crate) recv_cq: Id,
    pub(crate) srq: Option<Id>,
    pub(crate) max_sends: usize,
    pub(crate) max_recvs: usize,
    pub(crate) sends: VecDeque<Entry>,
    pub(crate) recvs: VecDeque<Entry>,
    /// Tags of the signaled sends that have not been polled, oldest first.
    pub(crate) unpolled_sends: VecDeque<u64>,
    /// Tags of the receives that have not been polled, oldest first.
    pub(crate) unpolled_recvs: VecDeque<u64>,
    /// Messages that the peer sent and that have not been polled.
    pub(crate) incoming: VecDeque<Message>,
    pub(crate) held: Vec<HeldModel>,
    pub(crate) windows: Vec<WindowModel>,
    /// Windows that a message of the peer invalidates, which has not been received.
    pub(crate) invalidating: Vec<WindowModel>,
    /// Memory of the window that was invalidated last.
    pub(crate) stale: Option<RemoteMemory>,
}

impl End {
    pub(crate) fn send_slots_free(&self) -> usize {
        self.max_sends - self.sends.len()
    }

    pub(crate) fn recv_slots_free(&self) -> usize {
        self.max_recvs - self.recvs.len()
    }

    /// Checks the number of free slots.
    pub(crate) fn check_slots(&mut self) -> Result<(), Violation> {
        let (sends, recvs) = (self.send_slots_free(), self.recv_slots_free());
        let found = with_qp!(&mut self.qp, qp => (qp.send_slots_free(), qp.recv_slots_free()));
        if found == (sends, recvs) {
            return Ok(());
        }
        Err(Violation(format!(
            "queue pair {:#x}: {found:?} free slots for sends and receives, expected {:?}",
            self.qp_num,
            (sends, recvs)
        )))
    }
}

/// Two connected queue pairs.
pub(crate) struct Link {
    pub(crate) id: Id,
    pub(crate) ends: [Option<End>; 2],
    /// A queue pair failed or was destroyed: requests can fail and messages can be lost.
    pub(crate) failed: bool,
    /// The transport can lose messages.
    pub(crate) lossy: bool,
    /// Transfers whose request has completed, but not their effect.
    pub(crate) landing: Vec<Effect>,
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
    pub(crate) capacity: usize,
    pub(crate) recvs: Vec<Entry>,
    /// Sinks and shared regions that the queue holds.
    pub(crate) held: Vec<HeldModel>,
    /// Number of receives that have not been polled.
    pub(crate) unpolled: usize,
    /// Number of receives that destroyed queue pairs may have taken.
    pub(crate) lost: usize,
}
