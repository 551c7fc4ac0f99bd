//! What could not be destroyed is leaked and counted.

use std::sync::atomic::{AtomicU64, Ordering};

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// How many identifiers of this process could not be destroyed and were leaked, each with its event channel.
///
/// It stays 0 in a healthy program. Queue pairs are counted by [`ibverbs::leaked_objects`].
pub fn leaked_objects() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// Counts an object whose destruction failed. The caller forgets what it guards.
pub(crate) fn count() {
    LEAKED.fetch_add(1, Ordering::Relaxed);
}
