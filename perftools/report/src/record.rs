//! The record of a test. It contains everything that the output formats print, and its fields
//! define the schema of `--json`.
//!
//! Latencies and durations are in nanoseconds, CPU times in seconds, sizes in bytes, and rates per
//! second.

use std::net::SocketAddr;
use std::time::SystemTime;

use base::error::{Error, Result};
use base::histogram::{Bucket, Percentiles};
use base::peer_text::printable;
use host::host_conf::HostConf;
use measure::result::{TestResult, TestRun};
use measure::spec::connection::ConnectionInfo;
use measure::spec::plan::{Pattern, Plan};
use measure::spec::test::Test;
use measure::spec::{Parameter, Spec};
use measure::stats::SideStats;
use measure::stats::interval::{Dip, DipKind, Interval};
use measure::stats::latency::LatencyRecorder;
use measure::stats::summary::{Interpretation, Summary};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::devices::sum;
use super::warning::{self, Warning, WarningInput, is_stall};

/// Version of the schema. It increases when a field is removed or changes its meaning. Adding a
/// field does not change it.
pub(crate) const SCHEMA: u32 = 1;

/// Result of a test that transferred data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Measured {
    /// `true` if the test was interrupted. The figures cover the time until then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
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
    /// The client's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_host: Option<HostConf>,
    /// The server's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_host: Option<HostConf>,
    /// Bandwidth, latency and message rate.
    pub summary: Summary,
    /// Latencies, for latency tests: half of each round trip, or whole round trips for RDMA READ
    /// and atomics.
    pub latency: Option<Percentiles>,
    /// Histogram of the latencies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_buckets: Vec<Bucket>,
    /// Each latency in nanoseconds, in the order of measurement, with `--samples`: the first
    /// 1,048,576 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_samples: Vec<u64>,
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
    /// Limits of the user that the result exceeds, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exceeded: Vec<String>,
    /// Detected conditions that can distort the results.
    #[serde(default)]
    pub warnings: Vec<Warning>,
    /// Results of each device, in a test over several devices. The fields above are then the sums,
    /// or the results of the slowest device in a latency test. `local` and `remote` list the
    /// devices, separated by commas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceResult>,
}

/// Result of one of several devices that were measured at the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct DeviceResult {
    /// Name of the client's device, as on the command line.
    pub device: String,
    /// Time from the start of the first device to the start of this one, in nanoseconds.
    pub start_offset: u64,
    /// Results of the device. The processor time of hosts and processes, which all devices share,
    /// is only in the sum.
    pub measured: Measured,
}

impl Measured {
    /// Makes the record of one session. `host_warnings` are those about the client's host.
    pub fn new(result: TestResult, host_warnings: &[Warning]) -> Self {
        let warnings = warning::collect(&WarningInput {
            spec: &result.spec,
            connection: &result.local,
            stats: [&result.local_stats, &result.remote_stats],
            one_host: result.one_host,
            one_port: result.one_port,
            host_warnings,
            server_warnings: &result.server_warnings,
        });
        let interpretation = Interpretation::new(result.spec.test, result.plan)
            .with_flip(result.spec.flip)
            .with_both_directions(result.spec.sockets.bidirectional);
        // An empty histogram would be half a megabyte of zeros.
        let latencies = result.latency;
        Self {
            partial: result.partial,
            spec: result.spec.for_record(),
            plan: result.plan,
            depth: result.depth,
            local: result.local,
            remote: result.remote,
            local_host: Some(result.local_host),
            remote_host: result.remote_host,
            summary: Summary::new(interpretation, &result.local_stats, &result.remote_stats),
            latency_buckets: latencies
                .as_ref()
                .map_or_else(Vec::new, LatencyRecorder::buckets),
            latency: latencies.as_ref().and_then(LatencyRecorder::percentiles),
            latency_samples: latencies.map_or_else(Vec::new, LatencyRecorder::into_samples),
            local_stats: result.local_stats,
            remote_stats: result.remote_stats,
            intervals: Vec::new(),
            dips: Vec::new(),
            exceeded: Vec::new(),
            warnings,
            devices: Vec::new(),
        }
    }

    /// Makes the record of a test with all of its sessions.
    ///
    /// # Panics
    /// Panics if there is no session.
    pub fn from_run(run: TestRun, host_warnings: &[Warning]) -> Self {
        let is_single = run.devices.len() == 1;
        let mut devices = run.devices.into_iter().map(|device| DeviceResult {
            device: device.device,
            start_offset: device.start_offset,
            measured: Self::new(device.result, host_warnings),
        });
        let mut measured = match devices.next() {
            Some(single) if is_single => single.measured,
            first => sum(first.into_iter().chain(devices).collect()),
        };
        // The dips include the stalls.
        if run.dips.iter().any(|dip| dip.kind == DipKind::Stall) {
            measured.warnings.retain(|warning| !is_stall(warning));
        }
        (measured.intervals, measured.dips) = (run.intervals, run.dips);
        measured
    }

    /// Encodes the record, for the coordinator of a mesh.
    pub fn encode(&self) -> Result<Box<RawValue>> {
        to_raw_value(self)
            .map_err(|e| Error::protocol(format!("cannot encode the record of a test: {e}")))
    }

    /// Parses a record that another host encoded.
    pub fn parse(text: &RawValue) -> Result<Self> {
        serde_json::from_str(text.get()).map_err(|e| {
            let text = format!("cannot parse the record of a test: {e}");
            Error::protocol(printable(&text))
        })
    }

    /// Returns `true` if both ends send data at the same time.
    pub(crate) fn is_bidirectional(&self) -> bool {
        self.spec.sockets.bidirectional
            || self
                .plan
                .is_some_and(|plan| plan.pattern == Pattern::BothWays)
    }

    /// Returns the bandwidth of each direction with its name, of a test in both directions or with
    /// `--flip`.
    pub(crate) fn directions(&self) -> impl Iterator<Item = (&'static str, f64)> + use<> {
        let is_shown = (self.is_bidirectional() || self.spec.flip) && self.is_bandwidth_test();
        let Summary {
            to_server,
            to_client,
            ..
        } = self.summary;
        [("to_server", to_server), ("to_client", to_client)]
            .into_iter()
            .filter_map(move |(name, bandwidth)| Some((name, bandwidth.filter(|_| is_shown)?)))
    }

    /// Returns `true` if both ends use the same port.
    pub(crate) fn has_one_port(&self) -> bool {
        let address = |c: &ConnectionInfo| match c.address.parse::<SocketAddr>() {
            Ok(address) => address.ip().to_string(),
            Err(_) => c.address.clone(),
        };
        let port = |c: &ConnectionInfo| (c.device.clone(), c.port, address(c));
        port(&self.local) == port(&self.remote)
    }

    /// Returns the results of each device, or the whole result if there is one device.
    pub(crate) fn each(&self) -> impl Iterator<Item = &Self> {
        let whole = self.devices.is_empty().then_some(self);
        whole
            .into_iter()
            .chain(self.devices.iter().map(|d| &d.measured))
    }

    /// Returns `true` if the main result is a bandwidth rather than a latency or a message rate.
    pub(crate) fn is_bandwidth_test(&self) -> bool {
        self.summary.bandwidth.is_some() && !self.plan.is_some_and(|plan| plan.verb.is_atomic())
    }
}

/// Outcome of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "a run has few of them")]
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

/// Converts a part of a record to a JSON value. It is encoded as text, for which the program has
/// the code: every other encoder and decoder of records adds 100 KB.
pub(crate) fn to_value(part: &impl Serialize) -> serde_json::Result<Value> {
    serde_json::from_str(&serde_json::to_string(part)?)
}

/// Record of one test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Record {
    /// Name of the test.
    pub test: Test,
    /// Host name given on the command line; null if both ends are on this host.
    pub host: Option<String>,
    /// Time at which the test started, in UTC (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// Command line of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Parameters that a sweep set for this run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Parameter>,
    /// Outcome of the test.
    pub outcome: Outcome,
}

impl Record {
    /// Creates a record without a date, a command line and parameters of a sweep.
    pub fn new(test: Test, host: Option<&str>, outcome: Outcome) -> Self {
        Self {
            test,
            host: host.map(str::to_owned),
            started: None,
            command: None,
            parameters: Vec::new(),
            outcome,
        }
    }

    /// Sets the time at which the test started.
    #[must_use]
    pub fn started_at(self, time: SystemTime) -> Self {
        Self {
            started: Some(humantime::format_rfc3339_seconds(time).to_string()),
            ..self
        }
    }
}
