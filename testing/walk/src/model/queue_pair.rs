//! Queue pairs and their requests in flight.

use std::collections::VecDeque;

use ibverbs::{Frozen, Held, QueueId, RemoteMemory, SharedRegion, Sink};

use super::memory::{BufModel, Id};
use super::message::Message;
use super::request::Entry;
use super::window::WindowModel;
use crate::transport::{AnyQp, with_qp};
use crate::violation::Violation;

/// Identifies a queue pair until another one is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpIndex {
    /// A link, and its side.
    Link(usize, usize),
    Datagram(usize),
}

/// Memory that a queue pair holds.
#[derive(Clone, Copy)]
pub(crate) enum HeldModel {
    Frozen(Held<Frozen>, Id, BufModel),
    Shared(Held<SharedRegion>, Id),
    Sink(Held<Sink>),
}

impl HeldModel {
    /// Returns `true` if both are tokens of the same memory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Frozen(_, id, _), Self::Frozen(_, other, _))
            | (Self::Shared(_, id), Self::Shared(_, other)) => id == other,
            (Self::Sink(token), Self::Sink(other)) => token.sge().addr == other.sge().addr,
            _ => false,
        }
    }
}

/// A queue pair, which is an end of a link or exchanges datagrams.
pub(crate) struct End {
    pub(crate) qp: AnyQp,
    pub(crate) id: QueueId,
    pub(crate) qp_num: u32,
    pub(crate) pd: Id,
    pub(crate) send_cq: Id,
    pub(crate) recv_cq: Id,
    pub(crate) srq: Option<Id>,
    /// It can hold regions that are addressed from 0.
    pub(crate) device_addresses: bool,
    pub(crate) max_sends: usize,
    pub(crate) max_recvs: usize,
    /// Sends complete in the order of posting.
    pub(crate) in_order: bool,
    /// Receives complete in the order of posting.
    pub(crate) receives_in_order: bool,
    /// Number of bytes in a receive buffer before those of a message.
    pub(crate) header: usize,
    /// Size of the smallest receive.
    pub(crate) min_recv: usize,
    pub(crate) sends: VecDeque<Entry>,
    pub(crate) recvs: VecDeque<Entry>,
    /// Sends and receives that failed, whose buffers the device may still access.
    pub(crate) kept: [Vec<Entry>; 2],
    /// Tags of the signaled sends that have not been polled, oldest first.
    pub(crate) unpolled_sends: VecDeque<u64>,
    /// Tags of the receives that have not been polled, oldest first.
    pub(crate) unpolled_recvs: VecDeque<u64>,
    /// Messages that were sent and that have not been polled. Those of a link arrive in this order.
    pub(crate) incoming: VecDeque<Message>,
    /// Number of completed receives whose completion was dropped, of an unknown request.
    pub(crate) lost_recvs: usize,
    pub(crate) held: Vec<HeldModel>,
    /// Memory that was released while requests could use it.
    pub(crate) releasing: Vec<HeldModel>,
    pub(crate) windows: Vec<WindowModel>,
    /// Windows that a message of the peer invalidates, which has not been received.
    pub(crate) invalidating: Vec<WindowModel>,
    /// Memory of the window that was invalidated last.
    pub(crate) stale: Option<RemoteMemory>,
}

impl End {
    /// Creates the model of a new queue pair of a domain, with its completion queues for sends and
    /// receives. Its requests complete in order.
    pub(crate) fn new(mut qp: AnyQp, pd: Id, [send_cq, recv_cq]: [Id; 2]) -> Self {
        let (id, qp_num, caps) = with_qp!(&mut qp, qp => (qp.id(), qp.qp_num().0, qp.caps()));
        Self {
            qp,
            id,
            qp_num,
            pd,
            send_cq,
            recv_cq,
            srq: None,
            device_addresses: false,
            max_sends: caps.max_send_wr as usize,
            max_recvs: caps.max_recv_wr as usize,
            in_order: true,
            receives_in_order: true,
            header: 0,
            min_recv: 0,
            sends: VecDeque::new(),
            recvs: VecDeque::new(),
            kept: [Vec::new(), Vec::new()],
            unpolled_sends: VecDeque::new(),
            unpolled_recvs: VecDeque::new(),
            incoming: VecDeque::new(),
            lost_recvs: 0,
            held: Vec::new(),
            releasing: Vec::new(),
            windows: Vec::new(),
            invalidating: Vec::new(),
            stale: None,
        }
    }

    pub(crate) fn send_slots_free(&self) -> usize {
        self.max_sends - self.sends.len()
    }

    pub(crate) fn recv_slots_free(&self) -> usize {
        self.max_recvs - self.recvs.len()
    }

    /// Returns `true` if no request is in flight, and none has a buffer that is kept.
    pub(crate) fn is_done(&self) -> bool {
        let kept = self.kept.iter().flatten();
        self.sends.is_empty() && self.recvs.is_empty() && kept.count() == 0
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

/// The model of a queue pair that could not be destroyed.
pub(crate) struct Leaked {
    pub(crate) pd: Id,
    pub(crate) held: Vec<HeldModel>,
}

/// The model of a queue pair that was destroyed.
pub(crate) struct Removed {
    pub(crate) sends: VecDeque<Entry>,
    pub(crate) recvs: VecDeque<Entry>,
    pub(crate) srq: Option<Id>,
    /// Number of messages that can have been written to receives.
    pub(crate) incoming: usize,
    /// The device may have written to the buffers of failed requests.
    pub(crate) overwritten: bool,
    pub(crate) queues: [Id; 2],
}

impl Removed {
    /// Takes the requests out of the model of a queue pair. The device may have `overwritten` their
    /// memory.
    pub(crate) fn take(end: &mut End, overwritten: bool) -> Self {
        let [sends, recvs] = std::mem::take(&mut end.kept);
        Self {
            sends: sends.into_iter().chain(end.sends.drain(..)).collect(),
            recvs: recvs.into_iter().chain(end.recvs.drain(..)).collect(),
            overwritten,
            srq: end.srq,
            incoming: end.incoming.len() + end.lost_recvs,
            queues: [end.send_cq, end.recv_cq],
        }
    }
}
