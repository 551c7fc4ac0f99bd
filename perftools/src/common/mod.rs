//! Code shared by the tools: errors, the log, texts of peers, units, names of devices and CPUs,
//! signals, quoting, latency histograms, metrics for Prometheus and their HTTP server, the framing
//! of the control protocol and parts of its servers. Used by `rperf`, `ribping` and `ribinfo`;
//! depends on no other directory.

pub mod cpus;
pub mod device_id;
pub mod error;
pub mod exposition;
pub mod histogram;
pub mod http;
pub mod interrupt;
pub mod log;
pub mod memory;
pub(crate) mod netlink;
pub(crate) mod peer_text;
pub mod ports;
pub mod protocol;
pub mod restart;
pub mod server;
pub(crate) mod shell;
pub mod system;
pub mod tcp_table;
pub mod threads;
pub mod units;

#[cfg(test)]
pub(crate) mod schema;
