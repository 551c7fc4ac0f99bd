//! Memory windows: remote access to a part of a shared region, granted and revoked without another
//! registration.
//!
//! Queue pairs bind and invalidate them.

mod bindings;
mod handle;
mod kind;
mod window;

pub(crate) use self::bindings::BoundWindows;
pub use self::kind::{Type1, Type2, WindowType};
pub(crate) use self::window::Bound;
pub use self::window::{Binding, BoundWindow, Window};
