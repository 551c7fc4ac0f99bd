//! The record of a test. It contains everything that the output formats print, and its fields
//! define the schema of `--json`.
//!
//! Latencies and durations are in nanoseconds, CPU times in seconds, sizes in bytes, and rates per
//! second.

use serde::{Deserialize, Serialize};

use super::host_conf::HostConf;
use super::warning::Warning;
use crate::common::histogram::Percentiles;
use crate::rperf::spec::Spec;
use crate::rperf::spec::connection::ConnectionInfo;
use crate::rperf::spec::plan::Plan;
use crate::rperf::spec::test::Test;
use crate::rperf::stats::SideStats;
use crate::rperf::stats::interval::{Dip, Interval};
use crate::rperf::stats::summary::Summary;

/// Version of the schema. It increases when a field is removed or changes its meaning. Adding a
/// field does not change it.
pub const SCHEMA: u32 = 1;

/// Result of a test that transferred data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Measured {
    /// Requested parameters.
    pub spec: Spec,
    /// Service, verb and pattern of the test on these devices; null for socket tests.
    pub plan: Option<Plan>,
    /// Negotiated total number of messages in flight on all queue pairs.
    pub depth: u32,
    /// Device and path of the client.
    pub local: ConnectionInfo,
    /// Device and path of the server.
    pub remote: ConnectionInfo,
    /// Bandwidth, latency and message rate.
    pub summary: Summary,
    /// Latencies, for latency tests: half of each round trip, or whole round trips for RDMA READ
    /// and atomics.
    pub latency: Option<Percentiles>,
    /// Counters of the client.
    pub local_stats: SideStats,
    /// Counters of the server.
    pub remote_stats: SideStats,
    /// Results of each interval, with `--interval`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// Stalls and outliers among the intervals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dips: Vec<Dip>,
    /// Detected conditions that can distort the results.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

impl Measured {
    /// Returns `true` if the main result is a bandwidth rather than a latency or a message rate.
    pub fn is_bandwidth_test(&self) -> bool {
        self.summary.bandwidth.is_some() && !self.plan.is_some_and(|plan| plan.verb.is_atomic())
    }
}

/// Outcome of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The test transferred data.
    Measured(Box<Measured>),
    /// Configuration of both hosts.
    Conf {
        /// The client's host.
        local: HostConf,
        /// The server's host.
        remote: HostConf,
    },
    /// The server has shut down.
    Quit,
    /// The test failed.
    Failed {
        /// Error message.
        error: String,
    },
}

/// Record of one test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Record {
    /// Name of the test.
    pub test: Test,
    /// Host name given on the command line; null if both ends are on this host.
    pub host: Option<String>,
    /// Outcome of the test.
    pub outcome: Outcome,
}
