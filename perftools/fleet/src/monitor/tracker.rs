//! The schedule, the probes in flight and the state of all paths of a device. It does no I/O.
//!
//! A probe ends in one of three ways, so that `sent = answered + late + lost + in flight`:
//!
//! - *answered*: an answer arrived within the timeout;
//! - *late*: an answer arrived after the timeout, within [`MonitorSettings::late_limit`];
//! - *lost*: no answer arrived within that time.
//!
//! The state of a path changes as soon as probes exceed the timeout. All probes have the same
//! limits. They end in the order in which they were sent, and the table of the probes in flight is
//! a queue.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;

/// Number of the buckets of the histogram. The last one has no upper bound.
pub(crate) const BUCKETS: usize = 22;
/// Upper bound of the first bucket in nanoseconds. Each further bound is twice the previous one.
pub(crate) const FIRST_BOUND: u64 = 1_000;

/// Maximum number of flow labels of a path.
pub const MAX_FLOWS: u8 = 8;

/// Settings of the probes.
#[derive(Clone, Copy, Debug)]
pub struct MonitorSettings {
    /// Time between two probes of a path.
    pub interval: Duration,
    /// Time after which an answer is late.
    pub timeout: Duration,
    /// Time after which a probe is lost.
    pub late_limit: Duration,
    /// Number of successive probes without an answer in time after which a path is lost.
    pub lost_after: u8,
    /// Number of flow labels of a path, at most [`MAX_FLOWS`].
    pub flows: u8,
    /// Largest number of probes per second of a device.
    pub max_rate: u32,
}

/// The state of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PathState {
    /// No probe has ended yet.
    #[default]
    Unknown,
    /// Answers arrive in time.
    Up,
    /// Answers arrive in time, except for those with certain flow labels.
    Partial,
    /// Answers arrive late.
    Stalled,
    /// No answers arrive.
    Lost,
}

impl PathState {
    /// All states.
    pub(crate) const ALL: [Self; 5] = [
        Self::Unknown,
        Self::Up,
        Self::Partial,
        Self::Stalled,
        Self::Lost,
    ];

    /// Returns the name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Partial => "partial",
            Self::Stalled => "stalled",
            Self::Lost => "lost",
        }
    }
}

/// A change of the state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// The path.
    pub path: u32,
    /// The previous state.
    pub from: PathState,
    /// The new state.
    pub to: PathState,
    /// The flow labels without answers, one bit for each.
    pub lost_flows: u8,
}

/// Counts and sums of a path since the start of the program. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Probes sent.
    pub sent: u64,
    /// Probes answered in time.
    pub answered: u64,
    /// Probes answered late.
    pub late: u64,
    /// Probes without an answer.
    pub lost: u64,
    /// Answers in time whose time in the network is known.
    pub timed: u64,
    /// Sum of the times in the network, of both directions.
    pub network: u64,
    /// Sum of the times in this host, of the answers in time.
    pub host: u64,
    /// Sum of the times in the peer's host.
    pub peer: u64,
}

/// Extremes of the time in the network since they were last taken, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extremes {
    /// Shortest time; 0 if there is none.
    pub min: u64,
    /// Longest time.
    pub max: u64,
}

/// A path to a reflector.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// The state.
    pub state: PathState,
    /// Counts and sums.
    pub totals: Totals,
    /// Extremes since the last report.
    pub extremes: Extremes,
    /// Time in the network of the latest probe.
    pub latest: u64,
    is_disabled: bool,
    next_flow: u8,
    /// Successive probes without an answer in time, together and for each flow label.
    missed: u8,
    missed_by_flow: [u8; MAX_FLOWS as usize],
    /// Number after that of the latest probe with an answer in time, for each flow label. Earlier
    /// probes say nothing about the present state.
    answered: [u64; MAX_FLOWS as usize],
    /// A late answer arrived since the last one in time.
    is_late: bool,
}

/// A probe to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeInFlight {
    /// The number of the probe.
    pub id: u64,
    /// The path.
    pub path: u32,
    /// The index of its flow label.
    pub flow: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathPhase {
    InFlight,
    TimedOut,
    /// Answered in time. The rest of the round trip is known except for the peer's part.
    Answered {
        device_time: u64,
    },
    Done,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    path: u32,
    flow: u8,
    phase: PathPhase,
    sent: u64,
    /// Time of the device's or the kernel's clock at which the probe was sent; 0 if unknown.
    posted: u64,
}

/// All paths of a device. Times are nanoseconds of a clock that never goes backwards.
#[derive(Debug)]
pub struct Tracker {
    settings: MonitorSettings,
    paths: Vec<Path>,
    /// Removed paths, and the number after that of their latest probe.
    removed: VecDeque<(u32, u64)>,
    /// Paths that are not disabled.
    enabled: usize,
    next_path: usize,
    next_at: u64,
    in_flight: VecDeque<InFlight>,
    /// Number of the first probe of `in_flight`.
    first: u64,
    /// Number of the first probe that has not exceeded the timeout.
    first_in_time: u64,
    changes: Vec<PathChange>,
    /// Times in the network of all paths.
    histogram: [u64; BUCKETS],
    histogram_sum: u64,
}

impl Tracker {
    /// Creates a tracker without paths.
    pub(crate) fn new(settings: MonitorSettings) -> Self {
        Self {
            settings,
            paths: Vec::new(),
            removed: VecDeque::new(),
            enabled: 0,
            next_path: 0,
            next_at: 0,
            in_flight: VecDeque::new(),
            first: 0,
            first_in_time: 0,
            changes: Vec::new(),
            histogram: [0; BUCKETS],
            histogram_sum: 0,
        }
    }

    /// Adds a path and returns its number. The number of a removed path is used again when none of
    /// its probes is in flight any more.
    pub(crate) fn add_path(&mut self) -> u32 {
        let removed = self.removed.front().copied();
        if let Some((number, _)) = removed.filter(|(_, end)| *end <= self.first) {
            self.removed.pop_front();
            self.paths[number as usize] = Path::default();
            self.enabled += 1;
            return number;
        }
        let number = u32::try_from(self.paths.len()).unwrap_or(u32::MAX);
        self.paths.push(Path::default());
        self.enabled += 1;
        number
    }

    /// Removes a path.
    pub(crate) fn remove_path(&mut self, number: u32) {
        self.enable(number, false);
        let end = self.first + self.in_flight.len() as u64;
        self.removed.push_back((number, end));
    }

    /// Enables or disables a path. A disabled path is not probed.
    pub(crate) fn enable(&mut self, path: u32, is_enabled: bool) {
        if let Some(path) = self.paths.get_mut(path as usize) {
            if path.is_disabled == is_enabled {
                path.is_disabled = !is_enabled;
                self.enabled = if is_enabled {
                    self.enabled + 1
                } else {
                    self.enabled - 1
                };
            }
        }
    }

    /// Returns all paths.
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// Returns the extremes of a path and begins new ones.
    pub(crate) fn take_extremes(&mut self, path: u32) -> Extremes {
        let path = self.paths.get_mut(path as usize);
        path.map_or_else(Extremes::default, |path| std::mem::take(&mut path.extremes))
    }

    /// Returns the number of probes in each bucket of the histogram, and the sum of their times in
    /// the network.
    pub(crate) fn histogram(&self) -> (&[u64; BUCKETS], u64) {
        (&self.histogram, self.histogram_sum)
    }

    /// Returns the time between two probes of the device.
    fn spacing(&self) -> u64 {
        let paths = u64::try_from(self.enabled.max(1)).unwrap_or(u64::MAX);
        let shortest = 1_000_000_000 / u64::from(self.settings.max_rate.max(1));
        (nanos(self.settings.interval) / paths).max(shortest)
    }

    /// Returns the probe to send at `now`, and counts it as sent; `None` if none is due.
    pub(crate) fn next_probe(&mut self, now: u64) -> Option<ProbeInFlight> {
        if self.enabled == 0 || now < self.next_at {
            return None;
        }
        let spacing = self.spacing();
        // After a delay of this process, the missed probes are not sent in one burst.
        let oldest = now.saturating_sub(nanos(self.settings.interval));
        self.next_at = self.next_at.max(oldest) + spacing;
        while self.paths[self.next_path % self.paths.len()].is_disabled {
            self.next_path += 1;
        }
        let number = self.next_path % self.paths.len();
        self.next_path = number + 1;
        let path = &mut self.paths[number];
        let flow = path.next_flow;
        path.next_flow = (flow + 1) % self.settings.flows.clamp(1, MAX_FLOWS);
        path.totals.sent += 1;
        let probe = ProbeInFlight {
            id: self.first + self.in_flight.len() as u64,
            path: u32::try_from(number).unwrap_or(u32::MAX),
            flow,
        };
        self.in_flight.push_back(InFlight {
            path: probe.path,
            flow,
            phase: PathPhase::InFlight,
            sent: now,
            posted: 0,
        });
        Some(probe)
    }

    fn probe(&mut self, id: u64) -> Option<&mut InFlight> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.in_flight.get_mut(index)
    }

    /// Records that a probe was sent at `at`, by the clock of the device or the kernel.
    pub(crate) fn posted(&mut self, id: u64, at: u64) {
        if let Some(probe) = self.probe(id) {
            probe.posted = at;
        }
    }

    /// Records an answer that arrived at `received` by the clock of [`posted`](Self::posted), and
    /// is handled at `now`. Answers that are repeated or too late are ignored.
    pub(crate) fn answered(&mut self, id: u64, received: u64, now: u64) {
        let timeout = nanos(self.settings.timeout);
        let Some(probe) = self.probe(id) else { return };
        let total = now.saturating_sub(probe.sent);
        let device_time = match probe.posted {
            0 => total,
            // The clock of the kernel can jump. Then only the total is known.
            posted => received
                .checked_sub(posted)
                .filter(|time| *time <= total)
                .unwrap_or(total),
        };
        let is_in_time = probe.phase == PathPhase::InFlight && total <= timeout;
        let is_late =
            matches!(probe.phase, PathPhase::InFlight | PathPhase::TimedOut) && !is_in_time;
        if !is_in_time && !is_late {
            return;
        }
        let was_counted = probe.phase == PathPhase::TimedOut;
        probe.phase = if is_in_time {
            PathPhase::Answered { device_time }
        } else {
            PathPhase::Done
        };
        let (number, flow) = (probe.path, probe.flow);
        let path = &mut self.paths[number as usize];
        if is_in_time {
            path.totals.answered += 1;
            path.totals.host += total - device_time;
            if path.missed >= self.settings.lost_after {
                path.missed_by_flow = [0; MAX_FLOWS as usize];
                path.answered = [id + 1; MAX_FLOWS as usize];
            }
            let latest = &mut path.answered[usize::from(flow)];
            *latest = (*latest).max(id + 1);
            path.missed = 0;
            path.missed_by_flow[usize::from(flow)] = 0;
            path.is_late = false;
        } else {
            path.totals.late += 1;
            path.is_late = true;
            if !was_counted {
                path.miss(id, flow);
            }
        }
        self.evaluate(number, is_in_time);
    }

    /// Records the time that the peer needed for an answer.
    pub(crate) fn timed(&mut self, id: u64, peer: u64) {
        let Some(probe) = self.probe(id) else { return };
        let PathPhase::Answered { device_time } = probe.phase else {
            return;
        };
        probe.phase = PathPhase::Done;
        let number = probe.path;
        // A peer whose clock jumped, or that is hostile, can report any time.
        let peer = peer.min(device_time);
        let network = device_time - peer;
        let path = &mut self.paths[number as usize];
        path.totals.timed += 1;
        path.totals.network += network;
        path.totals.peer += peer;
        path.latest = network;
        let Extremes { min, max } = &mut path.extremes;
        *min = if *min == 0 {
            network
        } else {
            network.min(*min)
        };
        *max = network.max(*max);
        self.histogram[bucket(network)] += 1;
        self.histogram_sum = self.histogram_sum.saturating_add(network);
    }

    /// Ends the probes whose limits have passed.
    pub(crate) fn expire(&mut self, now: u64) {
        let timeout = nanos(self.settings.timeout);
        loop {
            let id = self.first_in_time;
            let Some(probe) = self.probe(id) else { break };
            if probe.sent.saturating_add(timeout) >= now {
                break;
            }
            let is_missed = probe.phase == PathPhase::InFlight;
            let (number, flow) = (probe.path, probe.flow);
            if is_missed {
                probe.phase = PathPhase::TimedOut;
                self.paths[number as usize].miss(id, flow);
                self.evaluate(number, false);
            }
            self.first_in_time += 1;
        }
        let limit = nanos(self.settings.late_limit.max(self.settings.timeout));
        while let Some(probe) = self.in_flight.front() {
            if self.first >= self.first_in_time || probe.sent.saturating_add(limit) >= now {
                break;
            }
            if probe.phase == PathPhase::TimedOut {
                self.paths[probe.path as usize].totals.lost += 1;
            }
            self.in_flight.pop_front();
            self.first += 1;
        }
    }

    /// Returns the time of the next probe or timeout.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let probe = (self.enabled > 0).then_some(self.next_at);
        let index = usize::try_from(self.first_in_time - self.first).ok()?;
        let timeout = self.in_flight.get(index).map(|probe| {
            probe
                .sent
                .saturating_add(nanos(self.settings.timeout))
                .saturating_add(1)
        });
        match (probe, timeout) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Returns the changes since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<PathChange> {
        std::mem::take(&mut self.changes)
    }

    /// Returns the number of probes that have neither been answered nor lost.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        let open =
            |probe: &&InFlight| matches!(probe.phase, PathPhase::InFlight | PathPhase::TimedOut);
        self.in_flight.iter().filter(open).count()
    }

    /// Sets the state of a path from its counts.
    fn evaluate(&mut self, number: u32, is_in_time: bool) {
        let lost_after = self.settings.lost_after;
        let path = &mut self.paths[number as usize];
        let lost_flows = path.lost_flows(lost_after);
        let is_down = path.missed >= lost_after;
        let state = match path.state {
            _ if is_down && path.is_late => PathState::Stalled,
            _ if is_down => PathState::Lost,
            _ if is_in_time || path.state == PathState::Up => {
                if lost_flows == 0 {
                    PathState::Up
                } else {
                    PathState::Partial
                }
            }
            before => before,
        };
        if state != path.state {
            // The last probes of a path that was removed report nothing.
            if path.is_enabled() {
                self.changes.push(PathChange {
                    path: number,
                    from: path.state,
                    to: state,
                    lost_flows,
                });
            }
            path.state = state;
        }
    }
}

impl Path {
    /// Returns `true` if the path is probed.
    pub fn is_enabled(&self) -> bool {
        !self.is_disabled
    }

    /// Counts a probe without an answer in time.
    fn miss(&mut self, id: u64, flow: u8) {
        let flow = usize::from(flow);
        if id >= self.answered[flow] {
            self.missed_by_flow[flow] = self.missed_by_flow[flow].saturating_add(1);
        }
        if self.answered.iter().all(|answered| id >= *answered) {
            self.missed = self.missed.saturating_add(1);
        }
    }

    fn lost_flows(&self, lost_after: u8) -> u8 {
        let mut bits = 0;
        for (flow, missed) in self.missed_by_flow.iter().enumerate() {
            bits |= u8::from(*missed >= lost_after) << flow;
        }
        bits
    }
}

pub(super) fn bucket(nanos: u64) -> usize {
    let doublings = nanos.div_ceil(FIRST_BOUND).max(1).next_power_of_two();
    (doublings.trailing_zeros() as usize).min(BUCKETS - 1)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
