//! Access to raw handles.

/// Access to the raw handle of an object, for verbs that this crate does not wrap.
///
/// Getting the pointer is safe, and it is valid while the object lives. Verbs called with it are
/// not checked: destroying the underlying object, or posting requests with other `wr_id`s to a
/// queue pair that this crate also posts to, breaks the guarantees of the safe API.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// use ibverbs::AsRaw;
/// let verbs_context = context.as_raw(); // *mut rdma_sys::ibv_context, for a verb that this crate does not wrap
/// assert!(!verbs_context.is_null());
/// # Ok::<(), ibverbs::Error>(())
/// ```
pub trait AsRaw {
    /// The C type of the object.
    type Raw;

    /// Returns the raw handle.
    fn as_raw(&self) -> *mut Self::Raw;
}

/// Implements [`AsRaw`] for a type with the raw handle in a field: `TYPE: RAW, FIELD`.
macro_rules! as_raw {
    ($type:ty: $raw:ty, $($field:tt).+) => {
        impl crate::AsRaw for $type {
            type Raw = $raw;

            fn as_raw(&self) -> *mut $raw {
                self.$($field).+.as_ptr()
            }
        }
    };
}
pub(crate) use as_raw;
