//! The results of the checks as metrics.

use checks::finding::{Finding, Level};
use checks::selection::Selection;
use host::HostFacts;
use host::root::Root;

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::exposition::Metrics;

/// All levels, with the values of their metric.
const LEVELS: [(Level, &str, f64); 4] = [
    (Level::Ok, "ok", 0.0),
    (Level::Unknown, "unknown", 1.0),
    (Level::Warning, "warning", 2.0),
    (Level::Fault, "fault", 3.0),
];

/// The results of one run of the checks.
#[derive(Debug)]
pub(super) struct CheckResults {
    findings: Vec<Finding>,
    /// The rates that InfiniBand ports support, in Mbit/s, by device and port.
    supported: BTreeMap<(String, u32), u32>,
    /// The rate that the user expects of each port, in Mbit/s.
    expected: Option<u32>,
    duration: Duration,
    ended: SystemTime,
}

impl CheckResults {
    /// Checks the host.
    pub(super) fn run(root: &Root, selection: &Selection) -> Self {
        let begin = Instant::now();
        let facts = HostFacts::read(root, None);
        let findings = selection.findings(&facts);
        let supported = facts.ports().filter_map(|(device, port)| {
            let supported = facts.link_caps(&device.name, port.port)?.supported;
            let mbps = supported
                .lanes()?
                .checked_mul(supported.lane_speed()?.mbps())?;
            Some(((device.name.clone(), port.port), mbps))
        });
        Self {
            supported: supported.collect(),
            expected: selection
                .expect
                .as_ref()
                .and_then(|expect| expect.rate?.checked_mul(1000)),
            findings,
            duration: begin.elapsed(),
            ended: SystemTime::now(),
        }
    }

    /// Returns the rate that a port should have in Mbit/s: the one that the user expects, or else
    /// the one that the port supports.
    pub(super) fn expected_rate(&self, device: &str, port: u32) -> Option<u32> {
        let supported = self.supported.get(&(device.to_owned(), port)).copied();
        self.expected.or(supported)
    }

    /// Writes the metrics.
    pub(super) fn write(&self, metrics: &mut Metrics<'_>) -> fmt::Result {
        let mut worst: BTreeMap<(&str, &str), Level> = BTreeMap::new();
        for finding in &self.findings {
            let object = finding.object.as_deref().unwrap_or_default();
            let level = worst.entry((finding.check, object)).or_insert(Level::Ok);
            *level = (*level).max(finding.level);
        }
        metrics.gauges(
            "ribinfo_check_level",
            "Worst finding on an object: 0 ok, 1 unknown, 2 warning, 3 fault.",
            worst.iter().map(|((check, object), level)| {
                ([("check", *check), ("object", *object)], value(*level))
            }),
        )?;
        metrics.gauges(
            "ribinfo_check_findings",
            "Number of findings of a level.",
            LEVELS.iter().map(|(level, name, _)| {
                let found = self.findings.iter().filter(|f| f.level == *level).count();
                ([("level", *name)], as_f64(found))
            }),
        )?;
        metrics.gauges(
            "ribinfo_check_duration_seconds",
            "Time that the latest run of the checks took.",
            [(NO_LABELS, self.duration.as_secs_f64())],
        )?;
        let ended = self.ended.duration_since(UNIX_EPOCH).unwrap_or_default();
        metrics.gauges(
            "ribinfo_check_timestamp_seconds",
            "Unix time at which the latest run of the checks ended.",
            [(NO_LABELS, ended.as_secs_f64())],
        )
    }
}

/// The labels of a metric that has none.
const NO_LABELS: [(&str, &str); 0] = [];

fn value(level: Level) -> f64 {
    let found = LEVELS.iter().find(|(candidate, ..)| *candidate == level);
    found.map_or(0.0, |(.., value)| *value)
}

#[allow(clippy::cast_precision_loss, reason = "a small number")]
fn as_f64(count: usize) -> f64 {
    count as f64
}
