//! The paths as metrics for Prometheus.

use std::fmt;
use std::sync::Arc;

use super::prober::{LocalPort, PathName};
use super::registration::Hosts;
use super::tracker::{BUCKETS, FIRST_BOUND, Path, PathState, Totals};
use crate::exposition::{self, Metrics, seconds};

/// The metrics of a monitor.
#[derive(Clone, Debug)]
pub struct MonitorMetrics {
    /// The devices of this host.
    pub sources: Arc<Vec<Arc<LocalPort>>>,
    /// The hosts that are monitored.
    pub hosts: Arc<Hosts>,
}

/// A copy of the paths of a device.
struct Snapshot<'a> {
    source: &'a str,
    names: Vec<PathName>,
    paths: Vec<Path>,
    histogram: [u64; BUCKETS],
    histogram_sum: u64,
    is_up: bool,
    has_device_clock: bool,
}

impl<'a> Snapshot<'a> {
    fn new(source: &'a LocalPort) -> Self {
        let state = source.state();
        let (histogram, histogram_sum) = state.tracker.histogram();
        Self {
            source: &source.name,
            names: state.names.clone(),
            paths: state.tracker.paths().to_vec(),
            histogram: *histogram,
            histogram_sum,
            is_up: state.error.is_none(),
            has_device_clock: source.has_device_clock,
        }
    }

    fn paths(&self) -> impl Iterator<Item = ([(&'static str, &str); 3], &Path)> {
        let probed = self.names.iter().zip(&self.paths);
        let probed = probed.filter(|(_, path)| path.is_enabled());
        probed.map(|(name, path)| {
            let labels = [
                ("source", self.source),
                ("target", &*name.target),
                ("device", &*name.device),
            ];
            (labels, path)
        })
    }
}

/// A family of counters of paths: name, description, value.
type CounterFamily = (&'static str, &'static str, fn(&Totals) -> u64);

const COUNTERS: &[CounterFamily] = &[
    ("rperf_probe_sent", "Probes sent.", |t| t.sent),
    (
        "rperf_probe_answered",
        "Probes answered within the timeout.",
        |t| t.answered,
    ),
    (
        "rperf_probe_late",
        "Probes answered after the timeout.",
        |t| t.late,
    ),
    (
        "rperf_probe_lost",
        "Probes without an answer. They are counted when no late answer can arrive any more.",
        |t| t.lost,
    ),
    (
        "rperf_probe_timed",
        "Probes whose time in the network is known.",
        |t| t.timed,
    ),
];

const SECONDS: &[CounterFamily] = &[
    (
        "rperf_probe_network_seconds",
        "Time of the timed probes in the network, both directions.",
        |t| t.network,
    ),
    (
        "rperf_probe_host_seconds",
        "Time of the answered probes in this host.",
        |t| t.host,
    ),
    (
        "rperf_probe_peer_seconds",
        "Time of the timed probes in the peer's host.",
        |t| t.peer,
    ),
];

impl exposition::MetricSource for MonitorMetrics {
    fn write(&self, metrics: &mut Metrics<'_>) -> fmt::Result {
        let snapshots: Vec<Snapshot<'_>> = self.sources.iter().map(|s| Snapshot::new(s)).collect();
        let paths = || snapshots.iter().flat_map(Snapshot::paths);
        metrics.gauges(
            "rperf_path_up",
            "1 if answers arrive in time, 0 if they are late or lost.",
            paths().filter_map(|(labels, path)| match path.state {
                PathState::Unknown => None,
                PathState::Up | PathState::Partial => Some((labels, 1.0)),
                PathState::Stalled | PathState::Lost => Some((labels, 0.0)),
            }),
        )?;
        metrics.gauges(
            "rperf_path_state",
            "State of the path: 0 unknown, 1 up, 2 partial (some flow labels are lost), 3 stalled, 4 lost.",
            paths().map(|(labels, path)| (labels, state_value(path.state))),
        )?;
        for (name, help, value) in COUNTERS {
            let samples = paths().map(|(labels, path)| (labels, value(&path.totals)));
            metrics.counters(name, help, samples)?;
        }
        for (name, help, value) in SECONDS {
            let samples = paths().map(|(labels, path)| (labels, value(&path.totals)));
            metrics.seconds_counters(name, help, samples)?;
        }
        metrics.gauges(
            "rperf_probe_network_latest_seconds",
            "Time of the latest probe in the network, both directions.",
            paths()
                .filter(|(_, path)| path.totals.timed > 0)
                .map(|(labels, path)| (labels, seconds(path.latest))),
        )?;
        metrics.histograms(
            "rperf_source_network_seconds",
            "Times of the probes of a device in the network.",
            snapshots.iter().map(|snapshot| {
                let bounds = (0..BUCKETS).map(bound).zip(snapshot.histogram);
                let labels = [("source", snapshot.source)];
                (labels, seconds(snapshot.histogram_sum), bounds.collect())
            }),
        )?;
        metrics.gauges(
            "rperf_source_up",
            "1 if the device of this host can send probes.",
            snapshots.iter().map(|snapshot| {
                let labels = [("source", snapshot.source)];
                (labels, f64::from(u8::from(snapshot.is_up)))
            }),
        )?;
        metrics.gauges(
            "rperf_source_device_clock",
            "1 if the device, or the kernel for UDP, takes the times of probes; 0 if the program does.",
            snapshots.iter().map(|snapshot| {
                let labels = [("source", snapshot.source)];
                (labels, f64::from(u8::from(snapshot.has_device_clock)))
            }),
        )?;
        let hosts = self.hosts.reachable();
        metrics.gauges(
            "rperf_target_up",
            "1 if the rperf server of the host answered the latest request.",
            hosts.iter().map(|(host, is_up)| {
                let labels = [("target", host.as_ref())];
                (labels, f64::from(u8::from(*is_up)))
            }),
        )
    }
}

fn state_value(state: PathState) -> f64 {
    let index = PathState::ALL.iter().position(|s| *s == state).unwrap_or(0);
    f64::from(u8::try_from(index).unwrap_or(0))
}

/// Returns the upper bound of a bucket in seconds.
fn bound(index: usize) -> f64 {
    if index + 1 == BUCKETS {
        f64::INFINITY
    } else {
        seconds(FIRST_BOUND << index)
    }
}
