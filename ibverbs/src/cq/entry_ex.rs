//! Copies of completions with additional fields.

use rdma_sys::ibv_wc;

/// A work completion with the additional fields. Fields that the queue was not created with are 0.
#[doc(hidden)]
#[derive(Clone, Copy, Default)]
#[allow(missing_debug_implementations, reason = "not part of the API")]
pub struct EntryEx {
    pub(crate) wc: ibv_wc,
    pub(crate) timestamp: u64,
    pub(crate) wallclock_ns: u64,
    pub(crate) flow_tag: u32,
    pub(crate) cvlan: u16,
    #[cfg(feature = "efa")]
    pub(crate) source_gid: Option<[u8; 16]>,
}
