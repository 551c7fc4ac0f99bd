//! A queue pair of any service with its owner, and the counts of its messages.

use base::error::{Error, Result};
use ibverbs::{
    Completion, DeviceRegion, Frozen, Held, Hold, Qpn, QueueId, QueuePair, Rc, RecvBatch,
    RemoteMemory, Retired, SharedRegion, Uc, Ud,
    efa::Srd,
    wr::{self, Destination, RecvPayload},
};

use super::flags::PostCounts;
use crate::engine::arrivals::Arrivals;
use crate::transport::cm::CmConnection;
use crate::transport::dc::DcConnection;
use crate::transport::xrc::XrcConnection;

/// The owner of a connected queue pair.
#[derive(Debug)]
// With the discriminant in a field of its own, matching takes fewer instructions than with a niche
// (benches/README.md).
#[repr(u8)]
pub enum AnyQp {
    /// RC, connected over the control connection.
    Rc(QueuePair<Rc>),
    /// RC, connected by rdma_cm.
    Cm(CmConnection),
    /// UC.
    Uc(QueuePair<Uc>),
    /// UD, with the peer's address.
    Ud(QueuePair<Ud>, Destination),
    /// XRC, with one connection for each direction.
    Xrc(XrcConnection),
    /// SRD, with the peer's address.
    Srd(QueuePair<Srd>, Destination),
    /// DC: an initiator and a target.
    Dc(DcConnection),
}

/// Evaluates an expression with the queue pair of an [`AnyQp`] that sends.
macro_rules! with_qp {
    ($any:expr, $qp:ident => $body:expr) => {
        match $any {
            AnyQp::Rc($qp) => $body,
            AnyQp::Cm(connection) => {
                let $qp = connection.qp_mut();
                $body
            }
            AnyQp::Uc($qp) => $body,
            AnyQp::Ud($qp, _) => $body,
            AnyQp::Xrc(connection) => {
                let $qp = &mut connection.sender;
                $body
            }
            AnyQp::Srd($qp, _) => $body,
            AnyQp::Dc(connection) => {
                let $qp = &mut connection.initiator;
                $body
            }
        }
    };
}

impl AnyQp {
    /// Adds memory to the objects that the queue pair keeps alive.
    pub(super) fn hold<M: Hold>(&mut self, memory: &M) -> ibverbs::Result<Held<M>> {
        with_qp!(self, qp => qp.hold(memory))
    }

    /// Returns the largest payload in bytes that can be posted inline.
    pub(super) fn max_inline(&mut self) -> u32 {
        with_qp!(self, qp => qp.caps().max_inline_data)
    }

    /// Returns the number of send requests that can be posted now.
    pub(super) fn send_slots_free(&mut self) -> usize {
        with_qp!(self, qp => qp.send_slots_free())
    }

    /// Retires a request; returns `None` if it is not in flight.
    #[inline]
    pub(super) fn retire(&mut self, completion: Completion<'_>) -> Option<Retired> {
        with_qp!(self, qp => qp.retire(completion)).ok()
    }

    /// Posts a credit message, with this immediate data on services whose messages have numbers.
    pub(super) fn post_credit(&mut self, imm: u32, tag: u64) -> ibverbs::Result<()> {
        let (plain, numbered) = (
            wr::send(wr::Empty).tag(tag),
            wr::send_with_imm(wr::Empty, imm).tag(tag),
        );
        match self {
            AnyQp::Rc(qp) => qp.post_send(plain),
            AnyQp::Cm(connection) => connection.qp_mut().post_send(plain),
            AnyQp::Xrc(connection) => {
                let request = plain.for_srq(connection.peer_srq);
                connection.sender.post_send(request)
            }
            AnyQp::Uc(qp) => qp.post_send(numbered),
            AnyQp::Ud(qp, to) => qp.post_send(numbered.to(*to)),
            AnyQp::Srd(qp, to) => qp.post_send(numbered.to(*to)),
            AnyQp::Dc(connection) => {
                let request = plain.to(connection.peer());
                connection.initiator.post_send(request)
            }
        }
        .map_err(Into::into)
    }

    /// Posts an RDMA read of one byte with `tag` on a reliable connection. The peer answers it
    /// after it has placed all earlier writes.
    pub(super) fn post_short_read(
        &mut self,
        target: Held<SharedRegion>,
        remote: RemoteMemory,
        tag: u64,
    ) -> Result<()> {
        let (Some(target), Some(remote)) = (target.slice(0..1), remote.slice(0..1)) else {
            return Err(Error::protocol("the peer's memory is empty"));
        };
        let request = wr::read(target, remote).tag(tag);
        match self {
            AnyQp::Rc(qp) => qp.post_send(request)?,
            AnyQp::Cm(connection) => connection.qp_mut().post_send(request)?,
            // Only iWARP, which has no other service, needs the read.
            _ => {}
        }
        Ok(())
    }

    /// Posts one receive to the queue of the queue pair. This costs less than a batch of one.
    #[inline]
    pub(super) fn post_recv(&mut self, target: impl RecvPayload) -> ibverbs::Result<()> {
        match self {
            AnyQp::Rc(qp) => qp.post_recv(wr::recv(target)),
            AnyQp::Cm(connection) => connection.qp_mut().post_recv(wr::recv(target)),
            AnyQp::Uc(qp) => qp.post_recv(wr::recv(target)),
            AnyQp::Ud(qp, _) => qp.post_recv(wr::recv(target)),
            AnyQp::Srd(qp, _) => qp.post_recv(wr::recv(target)),
            AnyQp::Xrc(_) | AnyQp::Dc(_) => return Ok(()), // these receive from the shared queue
        }
        .map_err(Into::into)
    }

    /// Posts a batch of receives to the queue of the queue pair.
    pub(super) fn recv_batch(
        &mut self,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> ibverbs::Result<()>,
    ) -> ibverbs::Result<()> {
        match self {
            AnyQp::Rc(qp) => qp.recv_batch(fill),
            AnyQp::Cm(connection) => connection.qp_mut().recv_batch(fill),
            AnyQp::Uc(qp) => qp.recv_batch(fill),
            AnyQp::Ud(qp, _) => qp.recv_batch(fill),
            AnyQp::Srd(qp, _) => qp.recv_batch(fill),
            AnyQp::Xrc(_) | AnyQp::Dc(_) => Ok(()), // these receive from the shared queue
        }
    }
}

/// The memory of a queue pair's messages, as held by the queue pair.
#[derive(Debug, Default)]
pub(super) struct HeldMemory {
    /// Source of all messages, if they are all the same.
    pub(super) frozen: Option<Held<Frozen>>,
    /// Target of fetches, or source of writes that the peer polls for.
    pub(super) shared: Option<Held<SharedRegion>>,
    /// Memory of a GPU: source of all messages, or target of fetches.
    pub(super) gpu: Option<Held<DeviceRegion>>,
}

/// A queue pair with its share of the memory and its counts.
#[derive(Debug)]
pub(super) struct QpState {
    pub(super) qp: AnyQp,
    pub(super) id: QueueId,
    /// Queue pair numbers in the completions of receives.
    pub(super) recv_qpns: Vec<Qpn>,
    pub(super) held: HeldMemory,
    /// Data messages posted.
    pub(super) sends: PostCounts,
    /// Slots of the send queue.
    send_slots: usize,
    /// Data messages whose sends completed, as have all earlier ones.
    pub(super) completed: u64,
    /// Data messages that arrived.
    pub(super) arrived: u64,
    /// Credit messages that arrived.
    pub(super) credits: u64,
    /// Number after that of the latest message that arrived.
    pub(super) next_expected: u64,
    /// Numbers of the messages that arrived, on services that may repeat messages.
    pub(super) arrivals: Option<Arrivals>,
}

impl QpState {
    pub(super) fn new(mut qp: AnyQp) -> Self {
        let (id, qpn) = with_qp!(&mut qp, inner => (inner.id(), inner.qp_num()));
        let send_slots = qp.send_slots_free();
        let recv_qpns = match &qp {
            AnyQp::Xrc(connection) => vec![connection.recv_qpn()],
            AnyQp::Dc(connection) => connection.recv_qpns(),
            _ => vec![qpn],
        };
        Self {
            qp,
            id,
            recv_qpns,
            held: HeldMemory::default(),
            sends: PostCounts::default(),
            send_slots,
            completed: 0,
            arrived: 0,
            credits: 0,
            next_expected: 0,
            arrivals: None,
        }
    }

    /// Returns the number of data messages that have completed with all earlier ones, on services
    /// where requests complete in any order. The slots of the send queue are freed in order.
    pub(super) fn completed_in_order(&mut self) -> u64 {
        let in_queue = (self.send_slots - self.qp.send_slots_free()) as u64;
        // Credits take slots, too, so this can be fewer than before.
        self.completed
            .max(self.sends.posted.saturating_sub(in_queue))
    }

    /// Returns `true` if a credit leaves slots of the send queue for `depth` data messages.
    pub(super) fn has_slot_for_credit(&mut self, depth: u32) -> bool {
        let in_flight = self.sends.posted - self.completed;
        let reserved = u64::from(depth).saturating_sub(in_flight);
        self.qp.send_slots_free() as u64 > reserved
    }
}
