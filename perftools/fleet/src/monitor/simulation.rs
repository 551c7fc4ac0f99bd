//! A simulated network in virtual time.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base::error::Result;
use session::probe::ReflectorInfo;

use super::metrics::MonitorMetrics;
use super::prober::{Arrival, AssignReflector, LocalPort, PathName, ProbeTransport, run};
use super::registration::Hosts;
use super::tracker::{MonitorSettings, PathChange, PathState};
use crate::exposition::{self, Format};

const SECOND: u64 = 1_000_000_000;

/// Time of the simulation at which some hosts die.
const DIES_AT: u64 = 20 * SECOND;

/// A network in which answers are late or lost.
struct Network {
    now: Arc<Mutex<u64>>,
    /// Arrivals by time.
    arrivals: BTreeMap<(u64, u64), Arrival>,
    /// Returns the time to the answer of a probe of a path; `None` if there is none.
    delay: fn(u32, u64) -> Option<u64>,
}

impl Network {
    fn new(delay: fn(u32, u64) -> Option<u64>) -> Self {
        Self {
            now: Arc::new(Mutex::new(SECOND)),
            arrivals: BTreeMap::new(),
            delay,
        }
    }
}

/// One path in 100 dies, and one in 100 becomes slow.
fn delay_of_dying_hosts(path: u32, now: u64) -> Option<u64> {
    match path % 100 {
        7 if now >= DIES_AT => None,
        8 if now >= DIES_AT => Some(SECOND),
        _ => Some(20_000),
    }
}

/// No path answers in the fourth minute of an hour, and all are slow in the fifth one.
fn delay_of_bad_minutes(_: u32, now: u64) -> Option<u64> {
    match now / (60 * SECOND) % 60 {
        3 => None,
        4 => Some(SECOND),
        _ => Some(20_000),
    }
}

impl ProbeTransport for Network {
    fn now(&self) -> u64 {
        *self.now.lock().unwrap()
    }

    fn set_target(&mut self, _: u32, _: &ReflectorInfo) {}

    fn is_ready(&mut self, _: u32) -> bool {
        true
    }

    fn slots_free(&mut self) -> usize {
        512
    }

    fn send(&mut self, path: u32, _: u8, id: u64) -> Result<()> {
        let now = self.now();
        self.arrivals
            .insert((now, 3 * id), Arrival::Posted { id, at: now + 1000 });
        if let Some(delay) = (self.delay)(path, now) {
            let received = now + delay;
            let answer = Arrival::Answer { id, received };
            self.arrivals.insert((received, 3 * id + 1), answer);
            let timing = Arrival::Timing { id, nanos: 5_000 };
            self.arrivals.insert((received + 2_000, 3 * id + 2), timing);
        }
        Ok(())
    }

    fn receive(&mut self, wait: Duration, arrivals: &mut Vec<Arrival>) -> Result<()> {
        let mut now = self.now.lock().unwrap();
        let end = *now + u64::try_from(wait.as_nanos()).unwrap();
        let first = self.arrivals.first_key_value().map(|((at, _), _)| *at);
        *now = first.map_or(end, |at| at.clamp(*now, end));
        let later = self.arrivals.split_off(&(*now + 1, 0));
        arrivals.extend(std::mem::replace(&mut self.arrivals, later).into_values());
        Ok(())
    }

    fn flow_label(&self, _: u32, flow: u8) -> u32 {
        flow.into()
    }
}

/// Returns the memory of this process in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

const PATHS: u32 = 10_000;

const SETTINGS: MonitorSettings = MonitorSettings {
    interval: Duration::from_secs(1),
    timeout: Duration::from_millis(500),
    late_limit: Duration::from_secs(2),
    lost_after: 3,
    flows: 4,
    max_rate: 20_000,
};

/// Returns a device with paths to this number of hosts.
fn source(paths: u32) -> Arc<LocalPort> {
    let source = Arc::new(LocalPort::new("sim0/1".into(), true, SETTINGS));
    for target in 0..paths {
        let (path, _) = source.path(PathName {
            target: format!("node{target}").into(),
            device: "mlx5_0/1".into(),
        });
        source.state().tracker.enable(path, true);
    }
    source
}

fn metrics(source: &Arc<LocalPort>) -> String {
    let metrics = MonitorMetrics {
        sources: Arc::new(vec![Arc::clone(source)]),
        hosts: Arc::new(Hosts::new(Vec::new(), None, Vec::new())),
    };
    exposition::encode(metrics, Format::Text)
}

/// Runs a test of this program in a process of its own. Returns `false` in that process.
fn runs_in_child(name: &str) -> bool {
    const CHILD: &str = "PERFTOOLS_TEST_MEMORY";
    if std::env::var_os(CHILD).is_some() {
        return false;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command
        .env(CHILD, "1")
        .args(["--exact", name, "--nocapture"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let has_passed = output.status.success() && text.contains("1 passed");
    assert!(has_passed, "{output:?}");
    true
}

/// The test measures the memory of its process, so no other test may run beside it.
#[test]
fn ten_thousand_targets_need_bounded_memory() {
    if runs_in_child("monitor::simulation::ten_thousand_targets_need_bounded_memory") {
        return;
    }
    let before = resident();
    let begin = Instant::now();
    let source = source(PATHS);
    let mut network = Network::new(delay_of_dying_hosts);
    let now = Arc::clone(&network.now);
    let changes: Mutex<Vec<(u64, PathChange)>> = Mutex::default();
    let on_change = |_: &LocalPort, change: &PathChange, _: &[u32]| {
        changes
            .lock()
            .unwrap()
            .push((*now.lock().unwrap(), *change));
    };
    let (_sender, receiver) = channel::<AssignReflector>();
    let until = |end: u64| {
        let now = Arc::clone(&now);
        move || *now.lock().unwrap() >= end
    };
    run(
        &source,
        &mut network,
        &receiver,
        &on_change,
        &until(DIES_AT),
    )
    .unwrap();
    let halfway = resident().saturating_sub(before);
    run(
        &source,
        &mut network,
        &receiver,
        &on_change,
        &until(2 * DIES_AT),
    )
    .unwrap();
    let used = resident().saturating_sub(before);
    let elapsed = begin.elapsed();
    let text = metrics(&source);
    println!(
        "{PATHS} paths: {} KiB after 20 s, {} KiB after 40 s, {elapsed:?}; metrics {} KiB",
        halfway >> 10,
        used >> 10,
        text.len() >> 10
    );
    // The test's own network and its copy of the names count as well.
    assert!(used < 32 << 20, "{} KiB", used >> 10);
    assert!(
        text.contains("rperf_path_up{source=\"sim0/1\",target=\"node7\",device=\"mlx5_0/1\"} 0.0")
    );

    // Each bad path is named within three intervals and a timeout, and no other one is.
    let changes = changes.into_inner().unwrap();
    let limit = DIES_AT + 3 * SECOND + 700_000_000;
    for (kind, state) in [(7, PathState::Lost), (8, PathState::Stalled)] {
        let named = changes.iter().filter(|(at, change)| {
            change.path % 100 == kind
                && matches!(change.to, PathState::Stalled | PathState::Lost)
                && *at <= limit
        });
        let mut paths: Vec<u32> = named.map(|(_, change)| change.path).collect();
        paths.dedup();
        assert_eq!(paths.len(), PATHS as usize / 100, "{state:?}");
        let tracker = &source.state().tracker;
        let with_state = tracker.paths().iter().filter(|p| p.state == state);
        assert_eq!(with_state.count(), PATHS as usize / 100);
    }
    let others = changes
        .iter()
        .filter(|(_, c)| !matches!(c.path % 100, 7 | 8));
    assert!(
        others
            .map(|(_, c)| c.to)
            .all(|state| state == PathState::Up)
    );
    let state = source.state();
    let sum = |count: fn(&super::tracker::Totals) -> u64| -> u64 {
        state.tracker.paths().iter().map(|p| count(&p.totals)).sum()
    };
    let sent = sum(|t| t.sent);
    assert!(sent > 380_000, "{sent}");
    assert_eq!(
        sent,
        sum(|t| t.answered + t.late + t.lost) + state.tracker.in_flight() as u64
    );
    // The network and the peer take 19 µs after the probe was sent. The peer needs 5 of them.
    let path = state.tracker.paths()[0];
    assert_eq!(path.totals.network / path.totals.timed, 14_000);
}

/// `SIMULATED_PATHS` sets the number of paths.
#[test]
fn two_days_of_probes_need_no_more_memory() {
    const HOURS: u64 = 48;
    const PROBES: u64 = HOURS * 3600;
    if runs_in_child("monitor::simulation::two_days_of_probes_need_no_more_memory") {
        return;
    }
    let paths = std::env::var("SIMULATED_PATHS");
    let paths: u32 = paths.map_or(2, |text| text.parse().unwrap());
    let source = source(paths);
    let mut network = Network::new(delay_of_bad_minutes);
    let now = Arc::clone(&network.now);
    let changes = AtomicU64::new(0);
    let on_change = |_: &LocalPort, _: &PathChange, _: &[u32]| {
        changes.fetch_add(1, Ordering::Relaxed);
    };
    let (_sender, receiver) = channel::<AssignReflector>();
    let mut after_six_hours = (0, 0);
    let mut last = (0, 0);
    for hour in 1..=HOURS {
        let is_over = || *now.lock().unwrap() >= hour * 3600 * SECOND;
        run(&source, &mut network, &receiver, &on_change, &is_over).unwrap();
        last = (resident(), metrics(&source).len());
        if hour == 6 {
            after_six_hours = last;
        }
    }
    let [before, after] = [after_six_hours, last].map(|(memory, scrape)| (memory >> 10, scrape));
    println!("{paths} paths, {changes:?} changes: {before:?}, then {after:?} KiB and bytes");
    assert!(after.0 < before.0 + 256, "{before:?} {after:?}");
    // Numbers have more digits.
    assert!(after.1 < before.1 * 5 / 4, "{before:?} {after:?}");
    let state = source.state();
    for path in state.tracker.paths() {
        let totals = path.totals;
        let ended = totals.answered + totals.late + totals.lost;
        assert!(totals.sent.abs_diff(PROBES) <= PROBES / 1000, "{totals:?}");
        assert!(totals.sent - ended < 10, "{totals:?}");
        // One minute of each hour.
        for bad in [totals.lost, totals.late] {
            assert!(bad.abs_diff(HOURS * 60) < HOURS * 4, "{totals:?}");
        }
        assert_eq!(path.state, PathState::Up);
    }
    // Each path becomes lost or stalled, and up again.
    let count = changes.into_inner() / u64::from(paths);
    assert!((2 * HOURS..8 * HOURS).contains(&count), "{count}");
}
