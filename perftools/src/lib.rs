//! Performance tools for RDMA: `rperf`.
//!
//! Data flows one way: [`args`] → [`config`] (checked) → [`control`] (the conversation with the peer) → [`transport`]
//! (a connected queue pair) → [`engine`] (the loop that is timed) → [`stats`] → [`report`] (a record, then a format).
//! [`run`] puts them together; the binary calls nothing else.

#![forbid(unsafe_code)]

pub mod args;
pub mod config;
pub mod engine;
pub mod error;
pub mod report;
pub mod stats;
pub mod test;
pub mod units;
