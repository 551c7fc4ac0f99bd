//! What could not be given back is counted.

use std::sync::atomic::{AtomicU64, Ordering};

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// How many agents and ports of this process could not be given back to the system. It stays 0 in a
/// healthy program.
pub fn leaked_objects() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// Counts an object that could not be given back.
pub(crate) fn count() {
    LEAKED.fetch_add(1, Ordering::Relaxed);
}
