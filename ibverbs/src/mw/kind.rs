//! Types of memory windows.

mod private {
    pub trait Sealed {}
    impl Sealed for super::Type1 {}
    impl Sealed for super::Type2 {}
}

/// The type of a memory window: [`Type1`] or [`Type2`].
///
/// # Example
/// ```no_run
/// use ibverbs::{
///     ProtectionDomain,
///     mw::{Window, WindowType},
/// };
/// fn windows<K: WindowType>(
///     pd: &ProtectionDomain,
///     count: usize,
/// ) -> ibverbs::Result<Vec<Window<K>>> {
///     (0..count).map(|_| pd.alloc_mw::<K>()).collect()
/// }
/// ```
///
/// # References
/// [`ibv_alloc_mw(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_mw.3.html)
#[doc(alias = "ibv_alloc_mw")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type of memory windows",
    label = "expected `mw::Type1` or `mw::Type2`"
)]
pub trait WindowType: private::Sealed + 'static {
    /// The value of `enum ibv_mw_type`.
    #[doc(hidden)]
    const RAW: u32;
}

/// A type 1 window, bound with a verb that chooses the key
/// ([`QueuePair::bind_mw`](crate::QueuePair::bind_mw)).
///
/// # Example
/// ```no_run
/// use ibverbs::{AccessFlags, SharedRegion, mw::Type1};
/// # fn f(qp: &mut ibverbs::QueuePair<ibverbs::Rc>, region: &SharedRegion) -> ibverbs::Result<()> {
/// let window = qp.pd().alloc_mw::<Type1>()?;
/// let bound = qp.bind_mw(window, region, AccessFlags::REMOTE_READ, 7)?; // completes with the tag 7
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_bind_mw(3)`](https://man7.org/linux/man-pages/man3/ibv_bind_mw.3.html); IBA 10.6.7
#[doc(alias = "ibv_bind_mw")]
#[derive(Clone, Copy, Debug)]
pub struct Type1;

/// A type 2 window, bound with a work request to a key that is known in advance
/// ([`wr::bind`](crate::wr::bind)). Only the peer of the queue pair can use it.
///
/// # Example
/// ```no_run
/// use ibverbs::{AccessFlags, SharedRegion, mw::Type2, wr};
/// # fn f(qp: &mut ibverbs::QueuePair<ibverbs::Rc>, region: &SharedRegion) -> ibverbs::Result<()> {
/// let window = qp.pd().alloc_mw::<Type2>()?;
/// let (bound, binding) = window.bind(region, AccessFlags::REMOTE_READ)?;
/// qp.post_send(wr::bind(binding).signaled(false))?; // later requests can send the key
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_alloc_mw(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_mw.3.html); IBA 10.6.7
#[doc(alias = "ibv_alloc_mw")]
#[derive(Clone, Copy, Debug)]
pub struct Type2;

impl WindowType for Type1 {
    const RAW: u32 = rdma_sys::IBV_MW_TYPE_1;
}

impl WindowType for Type2 {
    const RAW: u32 = rdma_sys::IBV_MW_TYPE_2;
}
