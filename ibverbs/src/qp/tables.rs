//! What a queue pair owns and holds while it exists.

use std::sync::Arc;

use super::address::Addresses;
use super::bindings::Windows;
use super::builder::{Made, Parts};
use super::flows::Flows;
use super::likely::less_likely;
use super::owner::Owner;
use super::place::Entry;
use super::receives::Receives;
use super::ring::Ring;
use super::srq;
use super::transport::QpType;
use crate::cq::{Ended, Shared, WcStatus};
use crate::identity::Requests;
use crate::parent_domain::ParentDomain;
use crate::pd::AttachedQueuePair;

/// What a queue pair owns while it exists, in the order in which it is dropped.
pub(super) struct Tables {
    pub(super) sends: Ring,
    pub(super) recvs: Receives<Ring>,
    pub(super) owner: Owner,
    pub(super) addresses: Addresses,
    pub(super) windows: Windows,
    pub(super) flows: Flows,
    _send_cq: Arc<Shared>,
    _recv_cq: Option<Arc<Shared>>,
    _srq: Option<Arc<srq::Inner>>,
    #[allow(dead_code, reason = "kept to be dropped")]
    pub(super) parent: Option<ParentDomain>,
    _attached: AttachedQueuePair,
}

impl Tables {
    /// Of a queue pair that was just made.
    pub(super) fn new(
        made: &Made,
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
            sends: Ring::new(owner.id, Requests::Sends, made.caps.max_send_wr),
            recvs: Receives::new(
                Ring::new(owner.id, requests, made.caps.max_recv_wr),
                made.caps.max_recv_sge,
                max_batch,
            ),
            owner,
            addresses: Addresses::default(),
            windows: Windows::default(),
            flows: Flows::default(),
            _send_cq: Arc::clone(of.send_cq.shared()),
            _recv_cq: of.recv_cq.map(|cq| Arc::clone(cq.shared())),
            _srq: of.srq.map(|srq| Arc::clone(srq.shared())),
            parent: None,
            _attached: of.pd.attach_queue_pair(),
        }
    }

    /// Takes out the request of a completion, and says how it ended. That is read where it is known
    /// which request it is, so that it is not kept over the call in the case that is rare.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub(super) fn retire(&mut self, completion: impl Ended) -> Option<(Entry, WcStatus)> {
        let wr_id = completion.wr_id();
        if let Some(entry) = self.sends.retire_oldest(wr_id) {
            return Some((entry, completion.status()));
        }
        less_likely();
        if let Some(entry) = self.recvs.table.retire_oldest(wr_id) {
            let status = completion.status();
            return Some((entry.received(status, completion), status));
        }
        let entry = self.retire_other(completion)?;
        Some((entry, completion.status()))
    }

    /// As [`retire`](Self::retire), for what is not the oldest, or keeps what is rare. One call, so
    /// that loops which retire prepare for no other.
    #[cold]
    #[inline(never)]
    fn retire_other(&mut self, completion: impl Ended) -> Option<Entry> {
        let wr_id = completion.wr_id();
        if let Some(sent) = self.sends.retire_send(wr_id) {
            return Some(sent);
        }
        Some(
            self.recvs
                .table
                .retire_receive(wr_id)?
                .received(completion.status(), completion),
        )
    }
}
