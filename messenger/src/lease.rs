//! The leases of a group's connections.
//!
//! `loom_tests.rs` compiles this file again with the atomics of loom.

use std::sync::Arc;

use super::sync::{AtomicU32, Ordering};

/// The number of leases of a group.
#[derive(Debug, Default)]
pub(crate) struct Leases(AtomicU32);

impl Leases {
    /// Returns a lease, if there are fewer than `max`.
    pub(crate) fn take(self: &Arc<Self>, max: u32) -> Option<Lease> {
        // An attempt that fails must not be counted, not even for a moment: another one would fail
        // too.
        let increase = |count| (count < max).then_some(count + 1);
        let taken = (self.0).fetch_update(Ordering::AcqRel, Ordering::Acquire, increase);
        taken.ok().map(|_| Lease(Arc::clone(self)))
    }

    /// Returns the number of leases.
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

/// The share of one connection in the receives of its group. Its messages keep it.
#[derive(Debug)]
pub(crate) struct Lease(Arc<Leases>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
