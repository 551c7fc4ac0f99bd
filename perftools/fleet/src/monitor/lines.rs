//! The output as JSON lines and as text.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::prober::LocalPort;
use super::tracker::{Extremes, Path, PathChange, PathState, Totals};

/// Version of the schema. It increases when a field changes its meaning or is removed.
pub(crate) const SCHEMA: u32 = 1;

/// A line of the output.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct MonitorLine {
    /// Version of the schema.
    pub schema: u32,
    /// Unix time in seconds.
    pub time: f64,
    /// The content.
    #[serde(flatten)]
    pub content: MonitorContent,
}

/// The content of a line.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MonitorContent {
    /// The state of a path changed.
    Change {
        /// The path.
        #[serde(flatten)]
        path: PathId,
        /// The previous state.
        from: PathState,
        /// The new state.
        to: PathState,
        /// Flow labels without answers; for UDP, source ports.
        lost_flow_labels: Vec<u32>,
    },
    /// The server of a host became reachable or unreachable.
    Target {
        /// The host.
        target: String,
        /// The server answered.
        reachable: bool,
        /// The reason why it did not.
        error: Option<String>,
    },
    /// The results of a path.
    Path {
        /// The path.
        #[serde(flatten)]
        path: PathId,
        /// The state.
        state: PathState,
        /// Probes sent since the start.
        sent: u64,
        /// Probes answered within the timeout.
        answered: u64,
        /// Probes answered after the timeout.
        late: u64,
        /// Probes without an answer.
        lost: u64,
        /// Times in the network since the previous line of the path; `null` without any.
        network_ns: Option<Times>,
        /// Average time in this host since the start, in nanoseconds.
        host_avg_ns: Option<u64>,
        /// Average time in the peer's host since the start, in nanoseconds.
        peer_avg_ns: Option<u64>,
    },
}

/// A path.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct PathId {
    /// Device and port of this host.
    pub source: String,
    /// The other host.
    pub target: String,
    /// Device and port of the other host.
    pub device: String,
}

/// Times in the network, of both directions, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Times {
    /// Shortest time.
    pub min: u64,
    /// Average time since the start.
    pub avg: u64,
    /// Longest time.
    pub max: u64,
    /// Latest time.
    pub latest: u64,
}

impl MonitorLine {
    /// Creates a line with the current time.
    pub fn new(content: MonitorContent) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            schema: SCHEMA,
            time: now.unwrap_or_default().as_secs_f64(),
            content,
        }
    }

    /// Returns the line as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

/// Returns the names of a path.
pub fn path_id(source: &LocalPort, path: u32) -> PathId {
    let state = source.state();
    let name = state.names.get(path as usize);
    PathId {
        source: source.name.clone(),
        target: name.map_or_else(String::new, |name| name.target.to_string()),
        device: name.map_or_else(String::new, |name| name.device.to_string()),
    }
}

/// Returns the line of a change.
pub fn change(source: &LocalPort, change: &PathChange, lost_flow_labels: &[u32]) -> MonitorLine {
    MonitorLine::new(MonitorContent::Change {
        path: path_id(source, change.path),
        from: change.from,
        to: change.to,
        lost_flow_labels: lost_flow_labels.to_vec(),
    })
}

/// Returns the message of a change for the log.
pub fn change_text(source: &LocalPort, change: &PathChange, lost_flow_labels: &[u32]) -> String {
    let PathId {
        source,
        target,
        device,
    } = path_id(source, change.path);
    let path = format!("{source} to {target} {device}");
    match change.to {
        PathState::Unknown => format!("{path}: unknown"),
        PathState::Up if change.from == PathState::Unknown => format!("{path}: up"),
        PathState::Up => format!("{path}: up again, was {}", change.from.name()),
        PathState::Partial => {
            let labels: Vec<String> = lost_flow_labels.iter().map(ToString::to_string).collect();
            format!(
                "{path}: partial: no answers to probes with flow label {}, which one of several equal routes may carry",
                labels.join(", ")
            )
        }
        PathState::Stalled => format!("{path}: stalled: answers arrive after the timeout"),
        PathState::Lost => format!("{path}: lost: no answers"),
    }
}

/// Returns the lines of all paths of a device, and begins new extremes.
pub fn paths(source: &LocalPort) -> Vec<MonitorLine> {
    let all: Vec<(Path, Extremes)> = {
        let mut state = source.state();
        let all: Vec<Path> = state.tracker.paths().to_vec();
        let with_extremes = (0..).zip(all);
        with_extremes
            .map(|(number, path)| (path, state.tracker.take_extremes(number)))
            .collect()
    };
    let probed = (0..).zip(all).filter(|(_, (path, _))| path.is_enabled());
    probed
        .map(|(number, (path, extremes))| {
            let totals = path.totals;
            let Totals {
                sent,
                answered,
                late,
                lost,
                ..
            } = totals;
            MonitorLine::new(MonitorContent::Path {
                path: path_id(source, number),
                state: path.state,
                sent,
                answered,
                late,
                lost,
                network_ns: totals.network.checked_div(totals.timed).and_then(|avg| {
                    (extremes.max > 0).then_some(Times {
                        min: extremes.min,
                        avg,
                        max: extremes.max,
                        latest: path.latest,
                    })
                }),
                host_avg_ns: totals.host.checked_div(totals.answered),
                peer_avg_ns: totals.peer.checked_div(totals.timed),
            })
        })
        .collect()
}

/// Returns a table of the paths for the end of the run: all that are not up, and the number of the
/// others.
pub fn summary(sources: &[std::sync::Arc<LocalPort>]) -> String {
    let mut text = String::new();
    let (mut up, mut sent, mut answered, mut late, mut lost) = (0_u64, 0, 0, 0, 0);
    for source in sources {
        let paths = source.state().tracker.paths().to_vec();
        for (number, path) in (0..).zip(paths).filter(|(_, path)| path.is_enabled()) {
            let totals = path.totals;
            sent += totals.sent;
            answered += totals.answered;
            late += totals.late;
            lost += totals.lost;
            if path.state == PathState::Up {
                up += 1;
                continue;
            }
            let PathId {
                target,
                device,
                source,
            } = path_id(source, number);
            let _ = writeln!(
                text,
                "{:<8} {source} to {target} {device}: {} sent, {} answered, {} late, {} lost",
                path.state.name(),
                totals.sent,
                totals.answered,
                totals.late,
                totals.lost
            );
        }
    }
    let open = sent - answered - late - lost;
    let _ = writeln!(
        text,
        "{up} paths up; {sent} probes: {answered} answered, {late} late, {lost} lost, {open} in flight"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_is_up_to_date() {
        base::schema::assert_up_to_date::<MonitorLine>(
            "rperf-monitor",
            SCHEMA,
            "rperf monitor --json",
        );
    }
}
