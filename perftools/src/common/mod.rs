//! Code shared by the tools: errors, the log, texts of peers, units, names of devices and CPUs,
//! signals, quoting, latency histograms, metrics for Prometheus and their HTTP server, the framing
//! of the control protocol and parts of its servers. Used by `rperf`, `ribping` and `ribinfo`;
//! depends on no other directory.

pub mod exposition;
pub mod http;
