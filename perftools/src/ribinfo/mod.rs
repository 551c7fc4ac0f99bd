//! `ribinfo` shows the RDMA devices of a host and checks its configuration.
//!
//! [`args`] → [`collect`] (facts of a host, parsed into types) → [`display`] (the layouts of the
//! older tools) or [`check`] (findings and their remedies). [`peer`] requests the facts of another
//! host. The program `ribinfo` calls [`main`].

pub mod args;
pub mod check;
pub mod collect;
pub mod display;
pub mod peer;
mod run;

pub use run::{main, run};
