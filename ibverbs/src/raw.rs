//! The way out to what the safe API does not cover.

/// Gives the raw handle of an object, for verbs that this crate does not wrap.
///
/// Taking the pointer is safe; what is done with it is not checked. The pointer is valid while the
/// object lives. Destroying the object behind it, or posting with `wr_id`s of your own to a queue
/// pair that this crate also posts to, breaks the promises of the safe API.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// use ibverbs::AsRaw;
/// let verbs_context = context.as_raw(); // *mut rdma_sys::ibv_context, for a verb that this crate lacks
/// assert!(!verbs_context.is_null());
/// # Ok::<(), ibverbs::Error>(())
/// ```
pub trait AsRaw {
    /// The C type behind the object.
    type Raw;

    /// The raw handle.
    fn as_raw(&self) -> *mut Self::Raw;
}
