//! A random walk over the safe verbs, with an oracle.
//!
//! The walk performs weighted random actions on protection domains, memory, completion queues,
//! shared receive queues and queue pairs, with the transports and operations that the device
//! supports. A model records the owner and the contents of every buffer. Each returned buffer, each
//! message and each region is compared with it byte by byte; the free slots of every queue and the
//! buffers of every pool are compared after each action.
//!
//! | module | contents |
//! |---|---|
//! | `setup` | the device of a walk, and what it supports |
//! | `action` | the kinds of actions and their weights |
//! | `transport` | queue pairs and completion queues of any kind, and posting |
//! | `model` | memory, queues, requests in flight and messages |
//! | `world` | all objects with their model |
//! | `actions` | performing the actions, and comparing the results with the model |
//! | `run` | the walk itself, its report, and shrinking a failure |
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
