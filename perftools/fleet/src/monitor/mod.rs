//! `rperf monitor` probes the paths from each device of this host to each device of other hosts, at
//! a low rate and without end.
//!
//! [`registration`] requests the reflectors of each host from its `rperf` server, and repeats that
//! while paths are lost. For each device of this host, a [`prober`] runs on a thread of its own. It
//! sends the probes that its [`tracker`] schedules over a
//! [`ProbeTransport`](prober::ProbeTransport): datagrams of RDMA ([`qp_transport`]) or of UDP
//! ([`udp_transport`]). [`metrics`] and [`lines`] are the output. [`mod@run`] starts all threads.

pub mod lines;
pub mod metrics;
pub mod prober;
pub mod qp_transport;
pub mod registration;
pub mod run;
pub mod tracker;
pub mod udp_transport;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
