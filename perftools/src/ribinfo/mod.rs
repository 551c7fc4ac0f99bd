//! `ribinfo` shows the RDMA devices of a host and checks its configuration.
//!
//! Data flows from [`args`] to [`host`] (the facts of a host, parsed into types), and from there to
//! `display` (the texts of the subcommands), to [`checks`] (findings and
//! their remedies) or to [`fleet::export`] (metrics for Prometheus). [`session::facts`] requests
//! the facts of another host. The program `ribinfo` calls [`main`].

pub mod args;
mod counters;
#[doc(hidden)]
pub mod display;
mod run;

pub use run::{main, run};
