//! Shared receive queues: receives that several queue pairs use.
//!
//! Queue pairs keep the shared receive queue that they receive from alive.

mod change;
mod members;
mod options;
mod queue;

pub use self::options::{Basic, SrqAttr, SrqOptions, SrqType, Xrc};
pub use self::queue::SharedReceiveQueue;
pub(crate) use self::queue::{SrqInner, XrcParts, check_provider};
