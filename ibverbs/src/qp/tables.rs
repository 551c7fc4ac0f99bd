//! The objects that a queue pair owns or keeps alive.

use std::any::Any;
use std::sync::{Arc, Weak};

use rdma_sys::ibv_wc;

use super::builder::{CreatedQp, Parts};
use crate::counter::CompletionCounter;
#[cfg(feature = "mlx5")]
use crate::cq::CompletionQueue;
use crate::cq::{SharedCq, WcFields};
use crate::device::{LeftCompletions, LeftNumbers};
use crate::flow::Flows;
use crate::identity::Direction;
use crate::in_flight::{CompletionOrder, Reclaimed, Retired, Ring};
use crate::mw::BoundWindows;
use crate::numbers::Qpn;
use crate::pd::{AttachedQueuePair, ParentDomain};
use crate::srq::SrqInner;
use crate::transport::SendTransport;
use crate::wr::{Addresses, Owner, Receives};
use crate::wr_id::RequestKind;

/// The objects that a queue pair owns or keeps alive, in the order in which they are dropped.
pub(crate) struct Tables {
    pub(crate) sends: Ring,
    pub(crate) recvs: Receives<Ring>,
    pub(crate) owner: Owner,
    pub(crate) addresses: Addresses,
    pub(crate) windows: BoundWindows,
    pub(crate) flows: Flows,
    send_cq: Arc<SharedCq>,
    recv_cq: Option<Arc<SharedCq>>,
    srq: Option<Arc<SrqInner>>,
    pub(crate) counters: Vec<CompletionCounter>,
    /// Buffers of the requests in flight when a scope destroyed the queue pair.
    pub(crate) reclaimed: Reclaimed,
    #[allow(dead_code, reason = "kept to be dropped")]
    pub(crate) parent: Option<Arc<ParentDomain>>,
    _attached: AttachedQueuePair,
}

impl Tables {
    /// Creates the tables of a queue pair that was just created from `parts`.
    pub(crate) fn new<T: SendTransport>(
        created: &CreatedQp,
        owner: Owner,
        parts: &Parts<'_>,
        max_batch: usize,
    ) -> Self {
        let recv_kind = if T::TRANSPORT.receives_datagrams() {
            RequestKind::RecvDatagram
        } else {
            RequestKind::Recv
        };
        // Devices complete receives in order (IBA 9.5), and each has a completion. If one does not,
        // the older receives must stay in flight, as the device may still write to their buffers.
        let recv_order = CompletionOrder::Any;
        let caps = created.caps;
        Self {
            sends: Ring::new(
                owner.id,
                RequestKind::Send,
                created.send_order,
                caps.max_send_wr,
            ),
            recvs: Receives::new(
                Ring::new(owner.id, recv_kind, recv_order, caps.max_recv_wr),
                caps.max_recv_sge,
                max_batch,
            ),
            owner,
            addresses: Addresses::default(),
            windows: BoundWindows::default(),
            flows: Flows::default(),
            send_cq: Arc::clone(parts.send_cq.inner()),
            recv_cq: parts.recv_cq.map(|cq| Arc::clone(cq.inner())),
            srq: parts.srq.map(|srq| Arc::clone(srq.shared())),
            counters: Vec::new(),
            reclaimed: Reclaimed::default(),
            parent: None,
            _attached: parts.pd.attach_queue_pair(),
        }
    }

    /// Returns `true` if the sends complete on this queue.
    #[cfg(feature = "mlx5")]
    pub(crate) fn sends_complete_on(&self, cq: &CompletionQueue) -> bool {
        Arc::ptr_eq(&self.send_cq, cq.inner())
    }

    /// Returns how often the queue pair refers to the completion queue of its sends, or `None` if
    /// receives of a shared receive queue complete there too.
    #[cfg(feature = "mlx5")]
    pub(crate) fn references_to_send_cq(&self) -> Option<usize> {
        let receives = (self.recv_cq.as_ref()).is_some_and(|cq| Arc::ptr_eq(cq, &self.send_cq));
        (!receives || self.srq.is_none()).then_some(1 + usize::from(receives))
    }

    /// Returns `true` if the completion queue was exposed, and completions of the queue pair may be
    /// left in it, which the provider then does not remove.
    pub(crate) fn leaves_lent_completions(&self) -> bool {
        let exposed = |cq: &Arc<SharedCq>| cq.was_exposed();
        exposed(&self.send_cq) && !self.sends.is_empty()
            || self.recv_cq.as_ref().is_some_and(exposed) && !self.recvs.table.is_empty()
    }

    /// Returns `true` if completions of the queue pair may be left, and the provider must not poll
    /// them when the queue pair is destroyed or reset.
    ///
    /// A failure that was completed in software can be followed by a completion of the device, also
    /// if the request had no memory.
    pub(crate) fn leaves_dangerous_completions(&self) -> bool {
        let left = self.send_cq.context().properties().left_completions;
        let has_failed = self.sends.has_failed_unowned() || self.recvs.table.has_failed_unowned();
        left == LeftCompletions::Dangerous && (has_failed || !self.is_done())
    }

    /// Returns `true` if no request is in flight, and none has a value that is kept.
    pub(crate) fn is_done(&self) -> bool {
        self.sends.is_done() && self.recvs.table.is_done()
    }

    /// Returns `true` if a request that uses borrowed memory is in flight.
    pub(crate) fn has_lent(&self) -> bool {
        self.sends.has_lent() || self.recvs.table.has_lent()
    }

    /// Removes all requests, and the slots for more, after the queue pair was destroyed.
    pub(crate) fn close(&mut self) {
        let (sends, recvs) = (self.sends.drain(), self.recvs.table.drain());
        if !sends.is_empty() || !recvs.is_empty() {
            self.reclaimed = Reclaimed::new(sends, recvs);
        }
        self.sends.resize(0);
        self.recvs.table.resize(0);
    }

    /// Marks the number of the queue pair, which was destroyed, if completions may be left.
    pub(crate) fn leave_number(&self, number: Qpn, numbers: &mut LeftNumbers) {
        let left = self.send_cq.context().properties().left_completions;
        if left == LeftCompletions::Found && !self.is_done() {
            let queues = std::iter::once(&self.send_cq).chain(&self.recv_cq);
            let end = |cq: &Arc<SharedCq>| {
                let cq: Weak<dyn Any + Send + Sync> = Arc::<SharedCq>::downgrade(cq);
                cq
            };
            numbers.add(number, queues.map(end));
        }
    }

    /// Tells the shared receive queue that the queue pair was destroyed.
    pub(crate) fn leave_srq(&self, number: Qpn) {
        if let (Some(srq), Some(cq)) = (&self.srq, &self.recv_cq) {
            srq.members().remove(number, self.owner.id, cq);
        }
    }

    /// Removes the request of a completion from its table and returns its result.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub(crate) fn retire(&mut self, wc: &ibv_wc) -> Option<Retired> {
        let wr_id = wc.wr_id();
        match wr_id.direction() {
            Direction::Send => Some(Retired::new(self.sends.retire(wr_id)?, wc)),
            Direction::Recv => Some(Retired::received(self.recvs.table.retire(wr_id)?, wc)),
        }
    }
}
