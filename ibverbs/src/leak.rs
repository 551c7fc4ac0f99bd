//! What could not be destroyed is leaked and counted, never freed under a device that may still use
//! it.

use std::sync::atomic::{AtomicU64, Ordering};

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// How many objects of this process could not be destroyed and were leaked, with all that they
/// guard. It counts those of crates that build on this one too, such as the identifiers of
/// `rdmacm`.
///
/// It stays 0 in a healthy program. A number above 0 means that a driver refused to destroy or
/// deregister something; the memory behind it is then kept for ever, because the device may still
/// write to it.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// drop(pd);
/// assert_eq!(
///     ibverbs::leaked_objects(),
///     0,
///     "a driver refused to destroy something"
/// );
/// # Ok::<(), ibverbs::Error>(())
/// ```
pub fn leaked_objects() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// Counts an object whose destruction failed, for crates that build on this one. The caller forgets
/// what the object guards.
///
/// # Example
/// ```
/// # let returned = 0;
/// // … after rdma_destroy_id() …
/// if returned != 0 {
///     ibverbs::count_leaked_object();
/// }
/// assert_eq!(ibverbs::leaked_objects(), 0);
/// ```
pub fn count_leaked_object() {
    count();
}

/// Counts an object whose destruction failed. The caller forgets what the object guards.
pub(crate) fn count() {
    LEAKED.fetch_add(1, Ordering::Relaxed);
    crate::trace::leaked();
}

/// Counts an object whose destruction failed, and keeps what it stands on alive for ever: nothing
/// is destroyed before its children.
pub(crate) fn with<T: Clone>(parent: &T) {
    count();
    std::mem::forget(parent.clone());
}
