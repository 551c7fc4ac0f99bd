//! Code that several tools share: errors, units, names of devices and CPUs, latency histograms and
//! the framing of the control protocol. It depends on no other directory; `rperf`, `ribping` and
//! `ribinfo` use it.

pub mod cpus;
pub mod device_id;
pub mod error;
pub mod histogram;
pub mod protocol;
pub mod system;
pub mod units;
