//! A measurement between two connected ends: what it is, the timed loops and their counts.
//!
//! | module | contents |
//! |---|---|
//! | [`spec`] | a test as data: the specification, its limits, the plan, the table of all tests |
//! | [`stats`] | counters, latencies, CPU times; the monitor thread of a running test |
//! | [`engine`] | the timed loops over a [`engine::DataPath`] |
//! | [`transport`] | connected RDMA queue pairs |
//! | [`sockets`] | the same tests over sockets |
//! | [`result`] | the result of a test at both ends, before it is judged |
//!
//! The order is that of the imports, lowest first. The crate prints nothing, speaks no protocol and
//! knows no file of a host: it reads the counters of ports through the crate `host`. The sessions
//! of both ends run its loops, and the reports read its results.

#![forbid(unsafe_code)]
#![expect(clippy::missing_errors_doc, reason = "errors explain themselves")]

pub mod data_key;
pub mod engine;
pub mod result;
pub mod sockets;
pub mod spec;
pub mod stats;
pub mod transport;
