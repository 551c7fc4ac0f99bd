//! The checked configuration: the one thing that control, transport and engines see of what was
//! asked for.
//!
//! [`Spec`] is a whole test as it crosses the wire. Both ends check it with the same code:
//! [`Spec::check`] against what this program can do, [`Spec::fit`] against a device. What comes out
//! of `fit` is a [`Shape`]: the numbers an engine runs by.

mod check;
mod fit;
mod limits;
mod shape;
mod side;
mod spec;

#[cfg(test)]
mod tests;

pub use crate::plan::MAX_MESSAGE;
pub use fit::Bounds;
pub use limits::{MAX_DEPTH, MAX_MEMORY, MAX_QPS, MAX_THREADS, MAX_TIME};
pub use shape::Shape;
pub use side::{Limit, Multicast, Side, Sockets};
pub use spec::Spec;
