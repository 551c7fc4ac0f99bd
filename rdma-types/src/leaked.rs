//! The count of leaked objects.

use std::sync::atomic::{AtomicU64, Ordering};

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of objects of this process that could not be destroyed and were leaked: of
/// `ibverbs`, `rdmacm` and `ibumad` together.
///
/// It stays 0 in a healthy program. A larger number means that a driver failed to destroy or
/// deregister an object. The memory that the object uses is then never freed, because the device
/// may still write to it.
///
/// # Example
/// ```
/// assert_eq!(rdma_types::leaked_objects(), 0);
/// ```
pub fn leaked_objects() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// Counts an object whose destruction failed. The caller leaks the memory that the object uses.
///
/// # Example
/// ```
/// # let returned = 0;
/// // … after umad_close_port() …
/// if returned != 0 {
///     rdma_types::count_leaked_object();
/// }
/// ```
pub fn count_leaked_object() {
    LEAKED.fetch_add(1, Ordering::Relaxed);
}
