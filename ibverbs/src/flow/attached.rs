//! Flow rules attached to a queue pair.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rdma_sys::{ibv_destroy_flow, ibv_flow};

/// Identifies a flow rule created by [`QueuePair::create_flow`](crate::QueuePair::create_flow).
///
/// # Example
/// ```no_run
/// use ibverbs::{
///     QueuePair, RawPacket,
///     flow::{FlowId, FlowRule, FlowSpec},
/// };
/// # fn f(qp: &mut QueuePair<RawPacket>) -> ibverbs::Result<()> {
/// let dns: FlowId = qp.create_flow(&FlowRule::new(1, [FlowSpec::dst_udp_port(53)]))?;
/// qp.destroy_flow(dns)?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_create_flow")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId(u64);

/// The flow rules attached to a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Flows(Vec<(FlowId, NonNull<ibv_flow>)>);

// SAFETY: a rule is a handle, and the libibverbs functions on it are thread-safe.
unsafe impl Send for Flows {}
// SAFETY: as for Send.
unsafe impl Sync for Flows {}

impl Flows {
    /// Adds a rule.
    pub(crate) fn add(&mut self, raw: NonNull<ibv_flow>) -> FlowId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = FlowId(NEXT.fetch_add(1, Ordering::Relaxed));
        self.0.push((id, raw));
        id
    }

    /// Removes a rule without destroying it.
    pub(crate) fn take(&mut self, flow: FlowId) -> Option<NonNull<ibv_flow>> {
        let index = self.0.iter().position(|(id, _)| *id == flow)?;
        Some(self.0.swap_remove(index).1)
    }

    /// Destroys all rules. A queue pair with rules cannot be destroyed.
    pub(crate) fn destroy_all(&mut self) {
        for (_, raw) in std::mem::take(&mut self.0) {
            // SAFETY: the rule is live and destroyed once. If this fails, destroying the queue pair
            // fails as well, and that failure is reported.
            let _ = unsafe { ibv_destroy_flow(raw.as_ptr()) };
        }
    }
}
