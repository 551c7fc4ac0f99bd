//! The tools of RDMA for the command line: [`rperf`] measures bandwidth and latency, [`ribping`]
//! tests reachability, [`ribinfo`] shows devices and checks the configuration of a host.
//!
//! Each tool has a module whose `main` is called by the program of the same name in `bin/`.
//! [`common`] holds the code that several tools share. [`commands`] describes all three tools for
//! manual pages and completions.
//!
//! A directory never depends on one that depends on it: `common` is below everything, then
//! `ribinfo` and `ribping`; `rperf` uses `ribinfo::collect`. `ci/tests/module-graph` checks this.

#![forbid(unsafe_code)]

pub mod commands;
pub mod common;
pub mod ribinfo;
pub mod ribping;
pub mod rperf;
