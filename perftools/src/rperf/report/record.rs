//! The record of a test: everything a format may print. Its fields are the schema of `--json`.
//!
//! Times are in nanoseconds (`nanos`, latencies) or seconds (processor time), sizes in bytes, rates
//! per second.

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

/// Version of the schema. A field more does not change it; one less or another meaning does.
pub const SCHEMA: u32 = 1;

/// The result of a test that moved data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Measured {
    /// What was asked for.
    pub spec: Spec,
    /// What the test came to on these devices, if it uses any.
    pub plan: Option<Plan>,
    /// Messages in flight that both ends agreed on, on all queue pairs together.
    pub depth: u32,
    /// This end's path.
    pub local: ConnectionInfo,
    /// The server's path.
    pub remote: ConnectionInfo,
    /// The figures.
    pub summary: Summary,
    /// Latencies, where the test measures them: one way (half of each round trip), or there and
    /// back where the peer's device answers alone (reads and atomics).
    pub latency: Option<Percentiles>,
    /// What this end counted.
    pub local_stats: SideStats,
    /// What the server counted.
    pub remote_stats: SideStats,
    /// What each interval brought, where intervals were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// What stands out among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dips: Vec<Dip>,
    /// What spoils the figures, as far as this end sees it.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

impl Measured {
    /// Whether bytes a second are the figure, not the time of a message or messages a second.
    pub fn is_of_bandwidth(&self) -> bool {
        self.summary.bandwidth.is_some() && !self.plan.is_some_and(|plan| plan.verb.is_atomic())
    }
}

/// What a test came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Data moved.
    Measured(Box<Measured>),
    /// Both hosts' configuration.
    Conf {
        /// This host.
        local: HostConf,
        /// The server's host.
        remote: HostConf,
    },
    /// The server has ended.
    Quit,
    /// The test failed.
    Failed {
        /// Why, in a sentence.
        error: String,
    },
}

/// The record of one test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Record {
    /// The test.
    pub test: Test,
    /// The host as it was named; none: both ends on this machine.
    pub host: Option<String>,
    /// What came of it.
    pub outcome: Outcome,
}
