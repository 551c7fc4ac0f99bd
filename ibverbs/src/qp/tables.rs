//! What a queue pair owns and holds while it exists.

use std::sync::Arc;

use rdma_sys::ibv_wc;

use super::builder::{CreatedQp, Parts};
use crate::cq::{CqInner, WcFields};
use crate::flow::Flows;
use crate::identity::Requests;
use crate::in_flight::{Entry, Ring, less_likely};
use crate::mw::BoundWindows;
use crate::pd::{AttachedQueuePair, ParentDomain};
use crate::srq::SrqInner;
use crate::transport::QpType;
use crate::wr::{Addresses, Owner, Receives};

/// What a queue pair owns while it exists, in the order in which it is dropped.
pub(crate) struct Tables {
    pub(crate) sends: Ring,
    pub(crate) recvs: Receives<Ring>,
    pub(crate) owner: Owner,
    pub(crate) addresses: Addresses,
    pub(crate) windows: BoundWindows,
    pub(crate) flows: Flows,
    _send_cq: Arc<CqInner>,
    _recv_cq: Option<Arc<CqInner>>,
    _srq: Option<Arc<SrqInner>>,
    #[allow(dead_code, reason = "kept to be dropped")]
    pub(crate) parent: Option<ParentDomain>,
    _attached: AttachedQueuePair,
}

impl Tables {
    /// Of a queue pair that was just made.
    pub(crate) fn new(
        made: &CreatedQp,
        owner: Owner,
        kind: QpType,
        of: &Parts<'_>,
        max_batch: u32,
    ) -> Self {
        let requests = if kind == QpType::UD {
            Requests::Datagrams
        } else {
            Requests::Receives
        };
        Self {
            sends: Ring::new(owner.id, Requests::SendTransport, made.caps.max_send_wr),
            recvs: Receives::new(
                Ring::new(owner.id, requests, made.caps.max_recv_wr),
                made.caps.max_recv_sge,
                max_batch,
            ),
            owner,
            addresses: Addresses::default(),
            windows: BoundWindows::default(),
            flows: Flows::default(),
            _send_cq: Arc::clone(of.send_cq.inner()),
            _recv_cq: of.recv_cq.map(|cq| Arc::clone(cq.inner())),
            _srq: of.srq.map(|srq| Arc::clone(srq.shared())),
            parent: None,
            _attached: of.pd.attach_queue_pair(),
        }
    }

    /// Takes out the request of a completion, and says how it ended. That is read where it is known
    /// which request it is, so that it is not kept over the call in the case that is rare.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub(crate) fn retire(&mut self, wc: &ibv_wc) -> Option<Entry> {
        let wr_id = wc.wr_id();
        if let Some(entry) = self.sends.retire_oldest(wr_id) {
            return Some(entry);
        }
        less_likely();
        if let Some(entry) = self.recvs.table.retire_oldest(wr_id) {
            return Some(entry.received(wc));
        }
        self.retire_other(wc)
    }

    /// As [`retire`](Self::retire), for what is not the oldest, or keeps what is rare. One call, so
    /// that loops which retire prepare for no other.
    #[cold]
    #[inline(never)]
    fn retire_other(&mut self, wc: &ibv_wc) -> Option<Entry> {
        let wr_id = wc.wr_id();
        if let Some(sent) = self.sends.retire_send(wr_id) {
            return Some(sent);
        }
        Some(self.recvs.table.retire_receive(wr_id)?.received(wc))
    }
}
