//! Memory windows, free and bound.

use ibverbs::RemoteMemory;
use ibverbs::mw::{BoundWindow, Type1, Type2, Window};

use super::memory::Id;

pub(crate) enum AnyWindow {
    Type1(Window<Type1>),
    Type2(Window<Type2>),
}

/// A window that is not bound.
pub(crate) struct FreeWindow {
    pub(crate) pd: Id,
    pub(crate) window: AnyWindow,
    /// The only region that it can be bound to, because the peer invalidated it.
    pub(crate) bound_to: Option<Id>,
}

pub(crate) enum AnyBound {
    Type1(BoundWindow<Type1>),
    Type2(BoundWindow<Type2>),
}

impl AnyBound {
    pub(crate) fn remote(&self) -> RemoteMemory {
        match self {
            Self::Type1(bound) => bound.remote(),
            Self::Type2(bound) => bound.remote(),
        }
    }
}

/// A window that a queue pair has bound. Only the peer uses it.
pub(crate) struct WindowModel {
    /// The request that binds it.
    pub(crate) tag: u64,
    pub(crate) bound: AnyBound,
    pub(crate) region: Id,
    /// The request that binds it has completed.
    pub(crate) is_active: bool,
}

/// The effect of a request on a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowRequest {
    Bind,
    Invalidate { is_type_2: bool },
}
