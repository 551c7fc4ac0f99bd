//! The prober of a device: sends the probes of its tracker and records the answers.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::error::Result;
use session::probe::ReflectorInfo;

use super::tracker::{MonitorSettings, PathChange, Tracker};

/// Longest time that a prober waits before it checks whether it must stop, or has new paths.
const MAX_WAIT: Duration = Duration::from_millis(100);
/// Maximum number of probes that are sent before answers are handled.
const BURST: usize = 64;

/// An event on a transport. Times are nanoseconds of the clock of the device or the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A probe was sent.
    Posted {
        /// The number of the probe.
        id: u64,
        /// Time.
        at: u64,
    },
    /// An answer arrived.
    Answer {
        /// The number of the probe.
        id: u64,
        /// Time.
        received: u64,
    },
    /// The peer reported the time that it needed for an answer.
    Timing {
        /// The number of the probe.
        id: u64,
        /// Time that the peer needed.
        nanos: u64,
    },
}

/// A way to send probes and to receive answers.
pub trait ProbeTransport {
    /// Returns the time in nanoseconds of a clock that never goes backwards.
    fn now(&self) -> u64;

    /// Sets the reflector of a path. Does not wait for its address to be resolved.
    fn set_target(&mut self, path: u32, reflector: &ReflectorInfo);

    /// Returns `true` if probes of the path can be sent, or if its address cannot be resolved.
    fn is_ready(&mut self, path: u32) -> bool;

    /// Returns the number of probes that can be sent now.
    fn slots_free(&mut self) -> usize;

    /// Sends a probe. A probe to an address that is not known is lost.
    fn send(&mut self, path: u32, flow: u8, id: u64) -> Result<()>;

    /// Waits for at most `wait` and adds what arrived.
    fn receive(&mut self, wait: Duration, arrivals: &mut Vec<Arrival>) -> Result<()>;

    /// Returns the flow label of a path, for messages.
    fn flow_label(&self, path: u32, flow: u8) -> u32;
}

/// The peer of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathName {
    /// The host, as the user named it.
    pub target: Arc<str>,
    /// The device and the port of the host.
    pub device: Arc<str>,
}

/// A device of this host, and its paths.
#[derive(Debug)]
pub struct LocalPort {
    /// The name of the device and its port.
    pub name: String,
    /// `true` if the device takes the times of probes.
    pub has_device_clock: bool,
    state: Mutex<SourceState>,
}

/// The paths of a device, their names and their states.
#[derive(Debug)]
pub struct SourceState {
    /// The names of the paths. Those of removed paths remain until their number is used again.
    pub names: Vec<PathName>,
    numbers: HashMap<PathName, u32>,
    /// Number of the latest change of the reflectors of each path, which is enabled only by it.
    changes: Vec<u64>,
    /// The states of the paths.
    pub tracker: Tracker,
    /// The error that ended the prober.
    pub error: Option<String>,
}

/// A new reflector for a path.
#[derive(Debug)]
pub struct AssignReflector {
    /// The path.
    pub path: u32,
    /// Number of this change of the path. Only the latest one enables the path.
    pub change: u64,
    /// Its reflector.
    pub reflector: ReflectorInfo,
}

impl LocalPort {
    /// Creates a device without paths.
    pub fn new(name: String, has_device_clock: bool, settings: MonitorSettings) -> Self {
        Self {
            name,
            has_device_clock,
            state: Mutex::new(SourceState {
                names: Vec::new(),
                numbers: HashMap::new(),
                changes: Vec::new(),
                tracker: Tracker::new(settings),
                error: None,
            }),
        }
    }

    /// Locks the paths of the device.
    pub fn state(&self) -> MutexGuard<'_, SourceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the path with this name and the number of its next change. A new path
    /// is not probed before it is enabled.
    pub(crate) fn path(&self, name: PathName) -> (u32, u64) {
        let state = &mut *self.state();
        let path = state.numbers.get(&name).copied().unwrap_or_else(|| {
            let path = state.tracker.add_path();
            state.tracker.enable(path, false);
            let index = path as usize;
            if index == state.names.len() {
                state.names.push(name.clone());
                state.changes.push(0);
            } else {
                state.names[index] = name.clone();
            }
            state.numbers.insert(name, path);
            path
        });
        let change = &mut state.changes[path as usize];
        *change += 1;
        (path, *change)
    }

    /// Removes the paths to devices of `target` that are not in `wanted`. Their numbers are used
    /// again, so that the memory does not grow with the devices that a host once had.
    pub(crate) fn retain(&self, target: &str, wanted: &HashSet<u32>) {
        let state = &mut *self.state();
        let (tracker, changes) = (&mut state.tracker, &mut state.changes);
        state.numbers.retain(|name, path| {
            let is_gone = &*name.target == target && !wanted.contains(path);
            if is_gone {
                tracker.remove_path(*path);
                changes[*path as usize] += 1;
            }
            !is_gone
        });
    }
}

impl SourceState {
    /// Enables a path, unless it was changed again or removed.
    fn enable(&mut self, path: u32, change: u64) {
        if self.changes.get(path as usize) == Some(&change) {
            self.tracker.enable(path, true);
        }
    }
}

/// A change, with the flow labels that have no answers.
pub type OnChange<'a> = &'a dyn Fn(&LocalPort, &PathChange, &[u32]);

/// Probes the paths of a device until `is_stopped` returns `true`.
pub fn run(
    source: &LocalPort,
    transport: &mut dyn ProbeTransport,
    targets: &Receiver<AssignReflector>,
    on_change: OnChange<'_>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<()> {
    let (mut arrivals, mut new_paths) = (Vec::new(), Vec::new());
    while !is_stopped() {
        for set in targets.try_iter() {
            transport.set_target(set.path, &set.reflector);
            new_paths.push((set.path, set.change));
        }
        new_paths.retain(|(path, change)| {
            let is_ready = transport.is_ready(*path);
            if is_ready {
                source.state().enable(*path, *change);
            }
            !is_ready
        });
        step(source, transport, on_change, &mut arrivals)?;
    }
    Ok(())
}

/// Sends the probes that are due, and waits for answers until the next one is.
fn step(
    source: &LocalPort,
    transport: &mut dyn ProbeTransport,
    on_change: OnChange<'_>,
    arrivals: &mut Vec<Arrival>,
) -> Result<()> {
    let mut slots = transport.slots_free().min(BURST);
    while slots > 0 {
        let Some(probe) = source.state().tracker.next_probe(transport.now()) else {
            break;
        };
        transport.send(probe.path, probe.flow, probe.id)?;
        slots -= 1;
    }
    let now = transport.now();
    let deadline = source.state().tracker.next_deadline();
    let wait = deadline.map_or(MAX_WAIT, |at| {
        Duration::from_nanos(at.saturating_sub(now)).min(MAX_WAIT)
    });
    // With all slots in use, only an arrival helps.
    let wait = if slots == 0 && wait.is_zero() {
        Duration::from_millis(1)
    } else {
        wait
    };
    arrivals.clear();
    transport.receive(wait, arrivals)?;
    let now = transport.now();
    let changes = {
        let tracker = &mut source.state().tracker;
        for arrival in arrivals.iter() {
            match *arrival {
                Arrival::Posted { id, at } => tracker.posted(id, at),
                Arrival::Answer { id, received } => tracker.answered(id, received, now),
                Arrival::Timing { id, nanos } => tracker.timed(id, nanos),
            }
        }
        tracker.expire(now);
        tracker.take_changes()
    };
    for change in &changes {
        let lost = (0..8).filter(|flow| change.lost_flows >> flow & 1 == 1);
        let labels: Vec<u32> = lost
            .map(|flow| transport.flow_label(change.path, flow))
            .collect();
        on_change(source, change, &labels);
    }
    Ok(())
}
