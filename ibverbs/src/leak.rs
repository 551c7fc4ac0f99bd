//! Objects that could not be destroyed. They are leaked and counted, because the device may still
//! use their memory.

/// Counts an object whose destruction failed, and emits a `tracing` event. The caller leaks the
/// memory that the object uses.
///
/// For crates that build on this one. The count is [`leaked_objects`](crate::leaked_objects).
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
    rdma_types::count_leaked_object();
    crate::trace::leaked();
}

/// Counts an object whose destruction failed, and leaks a clone of its parent, because an object
/// must not be destroyed before its children.
pub(crate) fn with_parent<T: Clone>(parent: &T) {
    std::mem::forget(parent.clone());
    count_leaked_object();
}
