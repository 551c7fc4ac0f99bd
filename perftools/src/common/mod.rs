//! Code shared by the tools: errors, the log, texts of peers, units, names of devices and CPUs,
//! latency histograms and the framing of the control protocol. Used by `rperf`, `ribping` and
//! `ribinfo`; depends on no other directory.

pub mod cpus;
pub mod device_id;
pub mod error;
pub mod histogram;
pub mod log;
pub(crate) mod peer_text;
pub mod protocol;
pub mod system;
pub mod units;
