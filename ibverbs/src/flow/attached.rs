//! The flow rules of a queue pair, which end before it.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rdma_sys::{ibv_destroy_flow, ibv_flow};

/// Which rule of a queue pair: [`QueuePair::create_flow`](crate::QueuePair::create_flow).
///
/// # Example
/// ```no_run
/// use ibverbs::{
///     QueuePair, RawPacket,
///     flow::{FlowId, FlowRule, FlowSpec},
/// };
/// # fn f(qp: &mut QueuePair<RawPacket>) -> ibverbs::Result<()> {
/// let dns: FlowId = qp.create_flow(&FlowRule::new(1, [FlowSpec::to_udp_port(53)]))?;
/// qp.destroy_flow(dns)?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_create_flow(3)`](https://man7.org/linux/man-pages/man3/ibv_create_flow.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId(u64);

/// The rules of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Flows(Vec<(FlowId, NonNull<ibv_flow>)>);

// SAFETY: a rule is a handle; libibverbs' functions on it are thread safe.
unsafe impl Send for Flows {}
// SAFETY: as above.
unsafe impl Sync for Flows {}

impl Flows {
    /// Keeps a rule that was made.
    pub(crate) fn add(&mut self, raw: NonNull<ibv_flow>) -> FlowId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = FlowId(NEXT.fetch_add(1, Ordering::Relaxed));
        self.0.push((id, raw));
        id
    }

    /// A rule that is still to be ended, taken out.
    pub(crate) fn take(&mut self, flow: FlowId) -> Option<NonNull<ibv_flow>> {
        let place = self.0.iter().position(|(id, _)| *id == flow)?;
        Some(self.0.swap_remove(place).1)
    }

    /// Ends every rule: a queue pair that has some cannot be destroyed.
    pub(crate) fn end(&mut self) {
        for (_, raw) in std::mem::take(&mut self.0) {
            // SAFETY: a rule that was made, ended once. What remains makes the destroy fail, which
            // is reported.
            let _ = unsafe { ibv_destroy_flow(raw.as_ptr()) };
        }
    }
}
