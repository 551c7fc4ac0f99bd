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
mod any_cq;
mod any_qp;
mod data;
mod datagrams;
mod link;
mod links;
mod memory;
mod objects;
mod payload;
mod poll;
mod post;
mod recv;
mod run;
mod scope;
mod threads;
mod windows;
mod world;

use std::fmt;

pub use self::action::Counts;
pub use self::run::{Options, Report, run};
pub use self::world::Setup;

/// A difference between the library and the model.
#[derive(Debug)]
pub struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

impl From<ibverbs::Error> for Violation {
    fn from(error: ibverbs::Error) -> Self {
        Self(format!("unexpected error: {error}"))
    }
}
