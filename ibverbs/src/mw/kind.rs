//! The types of memory windows.

mod private {
    pub trait Sealed {}
    impl Sealed for super::Type1 {}
    impl Sealed for super::Type2 {}
}

/// The type of a memory window: [`Type1`] or [`Type2`].
pub trait WindowType: private::Sealed + 'static {
    /// Its number (`enum ibv_mw_type`).
    #[doc(hidden)]
    const RAW: u32;
}

/// Bound by a verb of its own, which chooses the key ([`QueuePair::bind_mw`](crate::QueuePair::bind_mw)).
#[derive(Clone, Copy, Debug)]
pub struct Type1;

/// Bound by a request as any other, to a key known before ([`wr::bind`](crate::wr::bind)), and for the peer of one queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Type2;

impl WindowType for Type1 {
    const RAW: u32 = rdma_sys::IBV_MW_TYPE_1;
}

impl WindowType for Type2 {
    const RAW: u32 = rdma_sys::IBV_MW_TYPE_2;
}
