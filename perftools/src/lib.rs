//! Command-line tools for RDMA: [`rperf`] measures bandwidth and latency, [`ribping`] tests
//! reachability, and [`ribinfo`] shows devices and checks the configuration of a host.
//!
//! Each tool has a module with a `main` function that the program of the same name in `bin/` calls.
//! [`common`] holds code shared by several tools. [`commands`] describes the command lines of all
//! tools for manual pages and completions.
//!
//! Dependencies between directories have no cycles: `common` uses no other directory, and `rperf`
//! uses `ribinfo::collect`. `ci/tests/module-graph` checks this.

#![forbid(unsafe_code)]

pub mod commands;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod ribinfo;
pub mod ribping;
pub mod rperf;
