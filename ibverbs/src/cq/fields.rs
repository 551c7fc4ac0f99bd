//! Which fields beyond the usual ones a completion queue is made with, as a type.

use std::marker::PhantomData;

use rdma_sys::{
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG,
};

mod private {
    pub trait Sealed {}
    impl Sealed for super::With {}
    impl Sealed for super::Without {}
    impl<T: super::Asked, W: super::Asked, V: super::Asked, F: super::Asked> Sealed
        for super::CqFields<T, W, V, F>
    {
    }
}

/// The field was asked for.
///
/// # Example
/// ```
/// use ibverbs::{CqFields, With};
/// let fields: CqFields<With> = CqFields::new().timestamp();
/// ```
///
/// # References
/// [`ibv_create_cq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct With;

/// The field was not asked for: its reader does not exist.
///
/// # Example
/// ```
/// use ibverbs::{CqFields, With, Without};
/// let only_the_vlan_tag: CqFields<Without, Without, With> = CqFields::new().cvlan();
/// ```
///
/// # References
/// [`ibv_create_cq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without;

/// [`With`] or [`Without`].
///
/// # Example
/// A function for queues with timestamps, whatever else they have:
/// ```no_run
/// use ibverbs::{Asked, CompletionQueueEx, CqFields, With};
/// fn newest<W: Asked, V: Asked, F: Asked>(
///     cq: &mut CompletionQueueEx<CqFields<With, W, V, F>>,
/// ) -> ibverbs::Result<Option<u64>> {
///     Ok(cq.poll()?.map(|completion| completion.timestamp()).last())
/// }
/// ```
pub trait Asked: private::Sealed + Copy + Send + Sync + 'static {
    #[doc(hidden)]
    const ASKED: bool;
}

impl Asked for With {
    const ASKED: bool = true;
}

impl Asked for Without {
    const ASKED: bool = false;
}

/// What a [`CompletionQueueEx`](crate::CompletionQueueEx) can read of its completions beyond what
/// every [`Completion`](crate::Completion) has: `T` the device's timestamp, `W` the time of day,
/// `V` the VLAN tag, `F` the flow tag.
///
/// # Example
/// ```
/// use ibverbs::{CqFields, With, Without};
/// let fields: CqFields<With, Without, With> = CqFields::new().timestamp().cvlan();
/// ```
///
/// # References
/// [`ibv_create_cq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CqFields<T: Asked = Without, W: Asked = Without, V: Asked = Without, F: Asked = Without>(
    PhantomData<(T, W, V, F)>,
);

impl CqFields {
    /// None beyond the usual ones.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<W: Asked, V: Asked, F: Asked> CqFields<Without, W, V, F> {
    /// When the request completed, on the device's clock (`IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`).
    pub const fn timestamp(self) -> CqFields<With, W, V, F> {
        CqFields(PhantomData)
    }
}

impl<T: Asked, V: Asked, F: Asked> CqFields<T, Without, V, F> {
    /// When the request completed, in time since the epoch
    /// (`IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK`).
    pub const fn wallclock(self) -> CqFields<T, With, V, F> {
        CqFields(PhantomData)
    }
}

impl<T: Asked, W: Asked, F: Asked> CqFields<T, W, Without, F> {
    /// The VLAN tag of a received packet (`IBV_WC_EX_WITH_CVLAN`).
    pub const fn cvlan(self) -> CqFields<T, W, With, F> {
        CqFields(PhantomData)
    }
}

impl<T: Asked, W: Asked, V: Asked> CqFields<T, W, V, Without> {
    /// The tag of the flow rule that a received packet matched (`IBV_WC_EX_WITH_FLOW_TAG`).
    pub const fn flow_tag(self) -> CqFields<T, W, V, With> {
        CqFields(PhantomData)
    }
}

/// A choice of fields: some [`CqFields`].
///
/// # Example
/// A function for queues with any fields:
/// ```no_run
/// use ibverbs::{CompletionQueueEx, FieldSet, QueuePair, Rc};
/// fn retire_all<F: FieldSet>(
///     cq: &mut CompletionQueueEx<F>,
///     qp: &mut QueuePair<Rc>,
/// ) -> ibverbs::Result<()> {
///     for completion in cq.poll()? {
///         qp.retire(completion.into())?.ok()?;
///     }
///     Ok(())
/// }
/// ```
pub trait FieldSet: private::Sealed + Copy + Send + Sync + 'static {
    /// The flags of the fields (`enum ibv_create_cq_wc_flags`).
    #[doc(hidden)]
    const FLAGS: u32;
    /// The fields, in words.
    #[doc(hidden)]
    const NAMES: [Option<&'static str>; 4];
}

impl<T: Asked, W: Asked, V: Asked, F: Asked> FieldSet for CqFields<T, W, V, F> {
    const FLAGS: u32 = flag(T::ASKED, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
        | flag(W::ASKED, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
        | flag(V::ASKED, IBV_WC_EX_WITH_CVLAN)
        | flag(F::ASKED, IBV_WC_EX_WITH_FLOW_TAG);
    const NAMES: [Option<&'static str>; 4] = [
        name(T::ASKED, "timestamp"),
        name(W::ASKED, "wall clock"),
        name(V::ASKED, "VLAN tag"),
        name(F::ASKED, "flow tag"),
    ];
}

const fn flag(asked: bool, flag: u32) -> u32 {
    if asked { flag } else { 0 }
}

const fn name(asked: bool, name: &'static str) -> Option<&'static str> {
    if asked { Some(name) } else { None }
}
