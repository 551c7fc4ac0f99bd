//! Command-line tools for RDMA: [`rperf`] measures bandwidth and latency, [`ribping`] tests
//! reachability, and [`ribinfo`] shows devices and checks the configuration of a host.
//!
//! Each tool has a module with a `main` function that the program of the same name in `bin/` calls.
//! [`commands`] describes the command lines of all tools for manual pages and completions.
//!
//! This package parses command lines and prints. The crates in its directory do the rest: [`host`]
//! reads the facts of a host, [`checks`] judges them, [`measure`] runs tests, [`session`] connects
//! both ends, [`report`] formats results, [`fleet`] measures many hosts, and all use [`base`].

#![forbid(unsafe_code)]
#![expect(clippy::missing_errors_doc, reason = "errors explain themselves")]

pub mod commands;
pub mod ribinfo;
pub mod ribping;
pub mod rperf;
mod usage;
