//! What a queue pair owns and holds while it exists.

use std::sync::Arc;

use super::address::Addresses;
use super::bindings::Windows;
use super::builder::{Made, Parts};
use super::flows::Flows;
use super::inflight::SendRing;
use super::owner::Owner;
use super::receives::Receives;
use super::srq;
use super::transport::QpType;
use crate::cq::Shared;
use crate::identity::Requests;
use crate::parent_domain::ParentDomain;
use crate::pd::AttachedQueuePair;

/// What a queue pair owns while it exists, in the order in which it is dropped.
pub(super) struct Tables {
    pub(super) sends: SendRing,
    pub(super) recvs: Receives,
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
    pub(super) fn new(made: &Made, owner: Owner, kind: QpType, of: &Parts<'_>, max_batch: u32) -> Self {
        let requests = if kind == QpType::UD { Requests::Datagrams } else { Requests::Receives };
        Self {
            sends: SendRing::new(owner.id, made.caps.max_send_wr),
            recvs: Receives::new(&owner, requests, made.caps.max_recv_wr, made.caps.max_recv_sge, max_batch),
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
}
