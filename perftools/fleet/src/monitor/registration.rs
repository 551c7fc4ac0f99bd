//! The hosts that are monitored, and their reflectors.
//!
//! Each host is asked for its reflectors at the start, then at a long interval, and at a short one
//! while it does not respond or a path to it is lost: a server that was restarted has new
//! reflectors. Several threads do that, so that hosts that do not respond do not delay others.

use std::collections::HashSet;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use base::interrupt::Interrupt;
use measure::transport::LinkType;
use session::probe::{ReflectorAddress, ReflectorInfo};
use session::protocol::frame::{self, DeadlineReader};
use session::protocol::token::Token;
use session::rperf::client::{self, ServerAddr};
use session::rperf::message::Message;

use super::prober::{PathName, SetTarget, Source};
use super::tracker::State;

/// Time between two requests to a host whose paths are up.
const LONG_INTERVAL: Duration = Duration::from_secs(300);
/// Time between two requests to a host that does not respond, or to which a path is lost.
const SHORT_INTERVAL: Duration = Duration::from_secs(5);
/// Time limit for a request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time that a thread waits before it checks whether it must stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// A host and its server.
#[derive(Clone, Debug)]
pub struct Target {
    /// The name of the host, and the port if it is not the default.
    pub name: Arc<str>,
    /// The host.
    pub host: String,
    /// The TCP port of its server.
    pub port: u16,
}

#[derive(Debug)]
struct HostState {
    target: Target,
    is_reachable: Option<bool>,
    /// Time of the next request; `None` while one is in flight.
    next: Option<Instant>,
}

/// The hosts that are monitored.
#[derive(Debug)]
pub struct Hosts {
    states: Mutex<Vec<HostState>>,
    changed: Condvar,
    token: Option<Token>,
}

/// The kind of probes that a device of this host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// Datagrams of RDMA.
    QueuePair(LinkType),
    /// Datagrams of UDP.
    Udp,
}

/// A device of this host, to which reflectors are assigned.
#[derive(Debug)]
pub struct SourceHandle {
    /// The device.
    pub source: Arc<Source>,
    /// The kind of its probes.
    pub kind: SourceKind,
    /// Its reflectors.
    pub targets: Mutex<Sender<SetTarget>>,
}

/// A change of the reachability of a host: its name, and the error.
pub type OnHost<'a> = &'a (dyn Fn(&str, Option<&Error>) + Sync);

impl Hosts {
    /// Creates the list of hosts.
    pub fn new(targets: Vec<Target>, token: Option<Token>) -> Self {
        let now = Instant::now();
        let states = targets.into_iter().map(|target| HostState {
            target,
            is_reachable: None,
            next: Some(now),
        });
        Self {
            states: Mutex::new(states.collect()),
            changed: Condvar::new(),
            token,
        }
    }

    fn states(&self) -> MutexGuard<'_, Vec<HostState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the hosts whose servers have been requested, and whether the latest request
    /// succeeded.
    pub fn reachable(&self) -> Vec<(Arc<str>, bool)> {
        let states = self.states();
        let known = states
            .iter()
            .filter_map(|s| Some((Arc::clone(&s.target.name), s.is_reachable?)));
        known.collect()
    }

    /// Requests reflectors until `is_stopped` returns `true`. Any number of threads call this.
    pub fn work(
        &self,
        sources: &[SourceHandle],
        on_host: OnHost<'_>,
        is_stopped: &(dyn Fn() -> bool + Sync),
    ) {
        while !is_stopped() {
            let Some((index, target)) = self.next_host() else {
                continue;
            };
            let result = self.request(&target);
            let usable = result.and_then(|reflectors| {
                let count = assign(sources, &target, &reflectors);
                if count > 0 {
                    return Ok(());
                }
                let names: Vec<&str> = reflectors.iter().map(|r| r.name.as_str()).collect();
                Err(Error::device(format!(
                    "no device of this host reaches a device of {}, which has {}",
                    target.name,
                    names.join(", ")
                )))
            });
            let mut states = self.states();
            let state = &mut states[index];
            let is_reachable = usable.is_ok();
            let has_changed = state.is_reachable != Some(is_reachable);
            state.is_reachable = Some(is_reachable);
            let interval = if is_reachable {
                LONG_INTERVAL
            } else {
                SHORT_INTERVAL
            };
            state.next = Some(Instant::now() + interval);
            drop(states);
            if has_changed {
                on_host(&target.name, usable.err().as_ref());
            }
        }
    }

    /// Requests the reflectors of a host soon, because a path to it is lost.
    pub fn hurry(&self, name: &str) {
        let soon = Instant::now() + SHORT_INTERVAL;
        let mut states = self.states();
        for state in states.iter_mut().filter(|s| &*s.target.name == name) {
            state.next = state.next.map(|next| next.min(soon));
        }
        self.changed.notify_one();
    }

    /// Wakes all threads.
    pub fn wake(&self) {
        self.changed.notify_all();
    }

    /// Returns the next host to request, and waits shortly if none is due.
    fn next_host(&self) -> Option<(usize, Target)> {
        let mut states = self.states();
        let now = Instant::now();
        let due = states.iter_mut().enumerate().find_map(|(index, state)| {
            let is_due = state.next.is_some_and(|next| next <= now);
            is_due.then(|| {
                state.next = None;
                (index, state.target.clone())
            })
        });
        if due.is_none() {
            drop(self.changed.wait_timeout(states, CHECK_INTERVAL));
        }
        due
    }

    /// Requests the reflectors of a host.
    fn request(&self, target: &Target) -> Result<Vec<ReflectorInfo>> {
        let addr = ServerAddr {
            host: target.host.clone(),
            port: target.port,
            wait: CONNECT_TIMEOUT,
            bind: None,
            token: self.token.clone(),
            qperf: false,
            interrupt: Interrupt::default(),
        };
        let mut stream = client::open(&addr, TIMEOUT)?;
        frame::write(&mut stream, &Message::AskReflectors)?;
        let mut reader = DeadlineReader::new(&stream, TIMEOUT);
        let reply: Message = frame::read_up_to(&mut reader, frame::MAX_FACTS_LEN)?;
        match reply.or_error("the server")? {
            Message::Reflectors(reflectors) => Ok(reflectors),
            other => Err(other.unexpected("the server")),
        }
        .map_err(|error: Error| match error.kind() {
            Kind::Peer => error.with_help("the server must be as new as this rperf"),
            _ => error,
        })
    }
}

/// Assigns the reflectors of a host to the devices of this host. Returns the number of paths.
fn assign(sources: &[SourceHandle], target: &Target, reflectors: &[ReflectorInfo]) -> usize {
    let mut count = 0;
    for handle in sources {
        let mut wanted = HashSet::new();
        for reflector in reflectors {
            let kind = match &reflector.address {
                ReflectorAddress::QueuePair { link, .. } => SourceKind::QueuePair(*link),
                ReflectorAddress::Udp(_) => SourceKind::Udp,
            };
            if kind != handle.kind {
                continue;
            }
            let path = handle.source.path(PathName {
                target: Arc::clone(&target.name),
                device: reflector.name.as_str().into(),
            });
            wanted.insert(path);
            let set = SetTarget {
                path,
                reflector: reflector.clone(),
            };
            let sender = handle
                .targets
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let _ = sender.send(set);
        }
        // Paths to devices that the host no longer has are not probed.
        let mut state = handle.source.state();
        let names = state.names.iter().enumerate();
        let gone: Vec<u32> = names
            .filter(|(_, name)| name.target == target.name)
            .filter_map(|(path, _)| u32::try_from(path).ok())
            .filter(|path| !wanted.contains(path))
            .collect();
        for path in gone {
            state.tracker.enable(path, false);
        }
        count += wanted.len();
    }
    count
}

/// Returns `true` if the state of a path suggests that the server of its host was restarted.
pub fn is_suspect(state: State) -> bool {
    matches!(state, State::Lost | State::Stalled)
}
