//! Types that select the additional fields of a completion queue.

#![allow(unsafe_code)]

use std::marker::PhantomData;

use rdma_sys::{
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_SUCCESS, ibv_context, ibv_cq_ex,
    ibv_cq_init_attr_ex, ibv_create_cq_ex, ibv_wc_read_completion_ts,
    ibv_wc_read_completion_wallclock_ns, ibv_wc_read_cvlan, ibv_wc_read_flow_tag,
};

use super::entry_ex::EntryEx;

pub(crate) mod private {
    pub trait Sealed {}
    impl Sealed for super::Enabled {}
    impl Sealed for super::Disabled {}
    impl<T: super::Field, W: super::Field, V: super::Field, F: super::Field> Sealed
        for super::CqFields<T, W, V, F>
    {
    }
}

/// Marks a field as selected.
#[doc(alias = "ibv_create_cq_ex")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enabled;

/// Marks a field as not selected: completions have no method that reads it.
#[doc(alias = "ibv_create_cq_ex")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disabled;

/// [`Enabled`] or [`Disabled`].
///
/// # Example
/// This function accepts any queue that has timestamps:
/// ```no_run
/// use ibverbs::cq_ex::{CompletionQueueEx, CqFields, Enabled, Field};
/// fn last_timestamp<W: Field, V: Field, F: Field>(
///     cq: &mut CompletionQueueEx<CqFields<Enabled, W, V, F>>,
/// ) -> ibverbs::Result<Option<u64>> {
///     Ok(cq.poll()?.map(|completion| completion.timestamp()).last())
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not select a completion field",
    label = "expected `Enabled` or `Disabled`"
)]
pub trait Field: private::Sealed + Copy + Send + Sync + 'static {
    /// `true` if the field is selected.
    #[doc(hidden)]
    const ENABLED: bool;
}

impl Field for Enabled {
    const ENABLED: bool = true;
}

impl Field for Disabled {
    const ENABLED: bool = false;
}

/// The additional fields of the completions of a
/// [`CompletionQueueEx`](crate::cq_ex::CompletionQueueEx).
///
/// `T` is the timestamp on the device's clock, `W` the wall-clock time, `V` the VLAN tag and `F`
/// the flow tag. Each is [`Enabled`] or [`Disabled`].
///
/// # Example
/// ```
/// use ibverbs::cq_ex::{CqFields, Disabled, Enabled};
/// let fields: CqFields<Enabled, Disabled, Enabled> = CqFields::new().timestamp().cvlan();
/// ```
#[doc(alias = "ibv_create_cq_ex")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CqFields<
    T: Field = Disabled,
    W: Field = Disabled,
    V: Field = Disabled,
    F: Field = Disabled,
>(PhantomData<(T, W, V, F)>);

impl CqFields {
    /// Selects no additional fields.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<W: Field, V: Field, F: Field> CqFields<Disabled, W, V, F> {
    /// Adds the time of completion on the device's clock (`IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`).
    pub const fn timestamp(self) -> CqFields<Enabled, W, V, F> {
        CqFields(PhantomData)
    }
}

impl<T: Field, V: Field, F: Field> CqFields<T, Disabled, V, F> {
    /// Adds the time of completion since the epoch
    /// (`IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK`).
    pub const fn wallclock(self) -> CqFields<T, Enabled, V, F> {
        CqFields(PhantomData)
    }
}

impl<T: Field, W: Field, F: Field> CqFields<T, W, Disabled, F> {
    /// Adds the VLAN tag of a received packet (`IBV_WC_EX_WITH_CVLAN`).
    pub const fn cvlan(self) -> CqFields<T, W, Enabled, F> {
        CqFields(PhantomData)
    }
}

impl<T: Field, W: Field, V: Field> CqFields<T, W, V, Disabled> {
    /// Adds the tag of the flow rule that matched a received packet (`IBV_WC_EX_WITH_FLOW_TAG`).
    pub const fn flow_tag(self) -> CqFields<T, W, V, Enabled> {
        CqFields(PhantomData)
    }
}

/// A set of additional fields: any [`CqFields`], or `efa::SourceGid`.
///
/// # Example
/// This function accepts a queue with any fields:
/// ```no_run
/// use ibverbs::{
///     QueuePair, Rc,
///     cq_ex::{CompletionQueueEx, FieldSet},
/// };
/// fn retire_all<F: FieldSet>(
///     cq: &mut CompletionQueueEx<F>,
///     qp: &mut QueuePair<Rc>,
/// ) -> ibverbs::Result<()> {
///     for completion in cq.poll()? {
///         qp.retire(completion.into())?.check()?;
///     }
///     Ok(())
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a set of completion fields",
    label = "expected a `CqFields`",
    note = "select the fields with methods, for example `CqFields::new().timestamp()`; without additional fields, `Context::create_cq` is enough"
)]
pub trait FieldSet: private::Sealed + Copy + Send + Sync + 'static {
    /// Flags of the selected fields (`enum ibv_create_cq_wc_flags`).
    #[doc(hidden)]
    const FLAGS: u32;
    /// Names of the selected fields, for messages.
    #[doc(hidden)]
    const NAMES: [Option<&'static str>; 4];
    /// The call that creates a queue, for errors.
    #[doc(hidden)]
    const CREATE: &'static str = "ibv_create_cq_ex";
    /// `true` if each completion must have a poll of the provider of its own.
    #[doc(hidden)]
    const ONE_BY_ONE: bool = false;

    /// Creates a queue. Returns NULL and sets `errno` on failure.
    ///
    /// # Safety
    /// The context and the objects in `attr` are alive.
    #[doc(hidden)]
    unsafe fn create(context: *mut ibv_context, attr: &mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex {
        // SAFETY: guaranteed by the caller.
        unsafe { ibv_create_cq_ex(context, attr) }
    }

    /// Returns `true` if the provider has set the functions that [`read`](Self::read) calls.
    #[doc(hidden)]
    fn has_readers(cq: &ibv_cq_ex) -> bool;

    /// Copies the additional fields of the current completion. The others were copied.
    ///
    /// # Safety
    /// A poll of `cq`, which was created by [`create`](Self::create) and [has the
    /// readers](Self::has_readers), is in progress and has a current completion.
    #[doc(hidden)]
    unsafe fn read(cq: *mut ibv_cq_ex, entry: &mut EntryEx);
}

impl<T: Field, W: Field, V: Field, F: Field> FieldSet for CqFields<T, W, V, F> {
    const FLAGS: u32 = flag(T::ENABLED, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
        | flag(W::ENABLED, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
        | flag(V::ENABLED, IBV_WC_EX_WITH_CVLAN)
        | flag(F::ENABLED, IBV_WC_EX_WITH_FLOW_TAG);
    const NAMES: [Option<&'static str>; 4] = [
        name(T::ENABLED, "timestamp"),
        name(W::ENABLED, "wall clock"),
        name(V::ENABLED, "VLAN tag"),
        name(F::ENABLED, "flow tag"),
    ];

    fn has_readers(cq: &ibv_cq_ex) -> bool {
        [
            (T::ENABLED, cq.read_completion_ts.is_some()),
            (W::ENABLED, cq.read_completion_wallclock_ns.is_some()),
            (V::ENABLED, cq.read_cvlan.is_some()),
            (F::ENABLED, cq.read_flow_tag.is_some()),
        ]
        .into_iter()
        .all(|(is_enabled, is_set)| is_set || !is_enabled)
    }

    #[inline]
    unsafe fn read(cq: *mut ibv_cq_ex, entry: &mut EntryEx) {
        // SAFETY: the caller guarantees a current completion and the readers of the fields.
        unsafe {
            if T::ENABLED {
                entry.timestamp = ibv_wc_read_completion_ts(cq);
            }
            if W::ENABLED {
                entry.wallclock_ns = ibv_wc_read_completion_wallclock_ns(cq);
            }
            if entry.wc.status != IBV_WC_SUCCESS {
                (entry.cvlan, entry.flow_tag) = (0, 0);
                return;
            }
            if V::ENABLED {
                entry.cvlan = ibv_wc_read_cvlan(cq);
            }
            if F::ENABLED {
                entry.flow_tag = ibv_wc_read_flow_tag(cq);
            }
        }
    }
}

const fn flag(enabled: bool, flag: u32) -> u32 {
    if enabled { flag } else { 0 }
}

const fn name(enabled: bool, name: &'static str) -> Option<&'static str> {
    if enabled { Some(name) } else { None }
}
