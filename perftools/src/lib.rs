//! Tools for RDMA: `rperf` measures, [`ping`] tells whether somebody is reachable, [`info`] whether
//! a host is set up right.
//!
//! In `rperf` data flows one way: [`args`] → [`config`] (checked) → [`control`] (the conversation
//! with the peer) → [`transport`] (a connected queue pair) → [`engine`] (the loop that is timed) →
//! [`stats`] → [`report`] (a record, then a format). Tests over sockets take [`socket`] instead of
//! transport and engine; [`qperf`] is the conversation with that program. [`auto`] searches for the
//! best settings with the same tests. [`run`] puts them together; the binary calls nothing else.
//! [`units`], [`error`], [`test`](mod@test) and [`host`] are used by all.

#![forbid(unsafe_code)]

pub mod args;
pub mod auto;
pub mod commands;
pub mod config;
pub mod control;
pub mod diagnose;
pub mod engine;
pub mod error;
pub mod facts;
pub mod host;
pub mod info;
pub mod path;
pub mod ping;
pub mod plan;
pub mod qperf;
pub mod report;
pub mod run;
pub mod show;
pub mod socket;
pub mod stats;
pub mod test;
pub mod transport;
pub mod tuning;
pub mod units;
