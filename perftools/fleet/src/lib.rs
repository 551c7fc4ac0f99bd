//! Many hosts: measurements of all pairs, probes without end, and metrics for Prometheus.
//!
//! | module | contents |
//! |---|---|
//! | [`mesh`] | `rperf mesh`: the tests of all pairs of hosts, their record, slow links and pages |
//! | [`monitor`] | `rperf monitor`: the state of the paths from this host to others |
//! | [`export`] | `ribinfo export`: counters, links, objects and findings of this host |
//! | [`exposition`] [`http`] | the encodings of metrics, and the server that answers requests for them |
//!
//! The crate uses all crates below it: the sessions to reach the other hosts, the report's
//! explanations of slow cells, and the checks for the exporter. Only the programs use it.

#![forbid(unsafe_code)]
#![expect(clippy::missing_errors_doc, reason = "errors explain themselves")]

pub mod export;
pub mod exposition;
pub mod http;
pub mod mesh;
pub mod monitor;
