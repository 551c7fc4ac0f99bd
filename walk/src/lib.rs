//! A random walk over the safe verbs, with an oracle.
//!
//! The walk performs weighted random actions on protection domains, memory, completion queues,
//! shared receive queues and connected queue pairs. A model records the owner and the contents of
//! every buffer. Each returned buffer, each message and each region is compared with it byte by
//! byte; the free slots of every queue and the buffers of every pool are compared after each
//! action.
//!
//! The walk has no `unsafe` code: no sequence of actions may lead to a violation.

#![forbid(unsafe_code)]

mod action;
mod actions;
mod model;
mod run;
mod setup;
mod transport;
mod violation;
mod world;

pub use self::action::Counts;
pub use self::run::{Options, Report, run};
pub use self::setup::{Setup, Support};
pub use self::violation::Violation;
