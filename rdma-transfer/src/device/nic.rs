//! One device of an engine: its state, its events, and opening it again after a fatal error.

use std::collections::HashMap;
use std::fmt;
use std::iter;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use ibverbs::device::TransportType;
use ibverbs::event::{AsyncEvents, EventSource, EventType};
use ibverbs::{
    CompletionChannel, CqId, Device, Error, ErrorKind, GidQuery, PortState, ProtectionDomain,
    RcPath, RemoteMemory, Result,
};

use crate::failure::{Failure, lock};
use crate::memory::region::{ACCESS, Domain};
use crate::options::EngineOptions;
use crate::protocol::signal::Poll;
use crate::waker::Waker;

/// Maximum number of READs in flight on a queue pair.
const MAX_READS: u32 = 16;

/// A peer, as the threads of an engine use it.
pub(crate) trait Handler: Poll {
    /// Advances all paths of a device.
    fn poll(&self, device: usize, now: Instant);
    /// Advances one path. Returns `false` if callers have polled it since the last call, and it was
    /// not advanced.
    fn poll_path(&self, path: usize, now: Instant) -> bool;
    /// Ends the queue pair of a path.
    fn fail_path(&self, path: usize, reason: &Failure);
    /// Processes a limited number of control messages. Returns `true` if more may have arrived.
    fn poll_control(&self, now: Instant) -> bool;
    /// Returns the descriptor of the control connection, unless its messages must wait.
    fn control(&self) -> Option<Arc<OwnedFd>>;
    /// Sends the new key of a region to the peer.
    fn send_key(&self, region: u64, device: usize, key: RemoteMemory);
    /// Returns `true` if it must be polled soon although no event is expected.
    fn is_busy(&self) -> bool;
}

/// An open device.
pub(crate) struct Open {
    pub(crate) generation: u64,
    pub(crate) pd: ProtectionDomain,
    pub(crate) channel: CompletionChannel,
    pub(crate) events: AsyncEvents,
    /// The path of its port when it was opened. `None` over iWARP, where the connection manager
    /// connects.
    path: Option<RcPath>,
    max_message: usize,
}

struct State {
    /// `None` after a fatal error, until it was opened again.
    open: Option<Arc<Open>>,
    generation: u64,
    /// Number of failures to open it since it has worked, and the time of the next attempt.
    failures: u32,
    retry_at: Option<Instant>,
    /// The reason why it cannot be used, if an event has reported one.
    down: Option<Failure>,
}

/// A peer and the number of its path.
type PathOf = (Weak<dyn Handler>, usize);

/// A device with the paths of all peers.
pub(crate) struct Nic {
    /// Number of the device in the engine.
    pub(crate) index: usize,
    pub(crate) name: String,
    options: EngineOptions,
    state: Mutex<State>,
    /// The peer and the number of the path of each completion queue.
    paths: Mutex<HashMap<CqId, PathOf>>,
    pub(crate) waker: Waker,
}

impl Nic {
    pub(crate) fn open(index: usize, name: &str, options: &EngineOptions) -> Result<Self> {
        let open = Open::new(name, options, 0)?;
        Ok(Self {
            index,
            name: name.to_owned(),
            options: *options,
            state: Mutex::new(State {
                open: Some(Arc::new(open)),
                generation: 0,
                failures: 0,
                retry_at: None,
                down: None,
            }),
            paths: Mutex::default(),
            waker: Waker::new()?,
        })
    }

    /// Returns the open device.
    pub(crate) fn device(&self) -> Option<Arc<Open>> {
        lock(&self.state).open.clone()
    }

    pub(crate) fn domain(&self) -> Option<Domain> {
        self.device().map(|open| Domain {
            generation: open.generation,
            pd: open.pd.clone(),
        })
    }

    /// Returns the maximum length of a message in bytes.
    pub(crate) fn max_message(&self) -> usize {
        self.device().map_or(usize::MAX, |open| open.max_message)
    }

    /// Returns the reason why queue pairs of this generation cannot be used, if an event has
    /// reported one.
    pub(crate) fn down(&self, generation: u64) -> Option<Failure> {
        let state = lock(&self.state);
        match &state.open {
            Some(open) if open.generation == generation => state.down.clone(),
            _ => Some(Failure::new(
                ErrorKind::Disconnected,
                "the device reported a fatal error",
            )),
        }
    }

    /// Returns the device and the path of its port, if the port is active.
    pub(crate) fn usable(&self) -> Result<(Arc<Open>, Option<RcPath>)> {
        let open = self.device().ok_or_else(|| {
            let what = format!("{} is not open after a fatal error", self.name);
            Error::new(ErrorKind::Disconnected, "use a device", what)
        })?;
        let context = open.pd.context();
        let port = context.query_port(self.options.port_num)?;
        if port.state != PortState::ACTIVE {
            let what = format!("port {} of {} is down", self.options.port_num, self.name);
            return Err(Error::new(ErrorKind::PortDown, "use a device", what));
        }
        // An event that says so can be late or lost.
        lock(&self.state).down = None;
        let Some(mut path) = open.path else {
            return Ok((open, None));
        };
        // The address can have another index since the link was down.
        let gid = context.select_gid(self.options.port_num, &GidQuery::default())?;
        path.sgid_index = Some(gid.entry.index);
        path.mtu = port.active_mtu;
        Ok((open, Some(path)))
    }

    /// Lets the events of a completion queue advance a path.
    pub(crate) fn add(&self, cq: CqId, peer: Weak<dyn Handler>, path: usize) {
        lock(&self.paths).insert(cq, (peer, path));
    }

    /// Reverses [`add`](Self::add).
    pub(crate) fn remove(&self, cq: CqId) {
        lock(&self.paths).remove(&cq);
    }

    /// Returns the number of completion queues whose events advance a path.
    #[cfg(test)]
    pub(crate) fn completion_queues(&self) -> usize {
        lock(&self.paths).len()
    }

    fn path(&self, cq: CqId) -> Option<(Arc<dyn Handler>, usize)> {
        let (peer, path) = lock(&self.paths).get(&cq)?.clone();
        Some((peer.upgrade()?, path))
    }

    /// Advances the paths whose completion queues are in `unarmed`, or have reported one of at most
    /// `max` events. Replaces `unarmed` by those that callers poll, which are not armed.
    pub(crate) fn poll_completions(&self, now: Instant, max: usize, unarmed: &mut Vec<CqId>) {
        let earlier = std::mem::take(unarmed);
        let open = self.device();
        let next = || open.as_ref()?.channel.try_next().ok()?;
        for cq in earlier.into_iter().chain(iter::from_fn(next).take(max)) {
            let path = self.path(cq);
            if path.is_some_and(|(peer, path)| !peer.poll_path(path, now)) {
                unarmed.push(cq);
            }
        }
    }

    /// Processes the asynchronous events.
    pub(crate) fn poll_events(&self, now: Instant) {
        let Some(open) = self.device() else {
            return;
        };
        loop {
            let event = match open.events.try_next() {
                Ok(Some(event)) => event,
                Ok(None) => return,
                Err(error) => return self.fail(&open, now, &Failure::from(&error)),
            };
            let reason = || {
                Failure::new(
                    ErrorKind::PortDown,
                    &format!("{} reported {event}", self.name),
                )
            };
            match (event.event_type, event.source) {
                (EventType::DEVICE_FATAL, _) => return self.fail(&open, now, &reason()),
                (EventType::PORT_ERR, EventSource::Port(port)) if port == self.options.port_num => {
                    lock(&self.state).down = Some(reason());
                }
                (EventType::PORT_ACTIVE, EventSource::Port(port))
                    if port == self.options.port_num =>
                {
                    lock(&self.state).down = None;
                }
                (EventType::CQ_ERR, EventSource::CompletionQueue(cq)) => {
                    if let Some((peer, path)) = self.path(cq) {
                        peer.fail_path(path, &reason());
                    }
                }
                _ => {}
            }
        }
    }

    /// Stops to use an open device.
    fn fail(&self, open: &Arc<Open>, now: Instant, reason: &Failure) {
        let mut state = lock(&self.state);
        let is_current = |current: &Arc<Open>| Arc::ptr_eq(current, open);
        if state.open.as_ref().is_some_and(is_current) {
            state.open = None;
            state.down = Some(reason.clone());
            state.back_off(&self.options, now);
        }
    }

    /// Opens the device again, if it is time to. Returns it if that succeeded. The caller registers
    /// the regions, and then calls [`reopened`](Self::reopened).
    pub(crate) fn reopen(&self, now: Instant) -> Option<Open> {
        let generation = {
            let mut state = lock(&self.state);
            if state.open.is_some() || state.retry_at.is_none_or(|at| at > now) {
                return None;
            }
            state.generation += 1;
            state.generation
        };
        let opened = Open::new(&self.name, &self.options, generation);
        let mut state = lock(&self.state);
        state.back_off(&self.options, now);
        match opened {
            Ok(open) => Some(open),
            Err(error) => {
                state.down = Some(Failure::from(&error));
                None
            }
        }
    }

    /// Uses a device that was opened again.
    pub(crate) fn reopened(&self, open: Open) {
        let mut state = lock(&self.state);
        state.open = Some(Arc::new(open));
        state.down = None;
    }

    /// Records that a path of the device works.
    pub(crate) fn works(&self) {
        lock(&self.state).failures = 0;
    }
}

impl State {
    /// Sets the time of the next attempt to open the device.
    fn back_off(&mut self, options: &EngineOptions, now: Instant) {
        self.retry_at = Some(now + options.backoff(self.failures, 0));
        self.failures += 1;
    }
}

impl Open {
    fn new(name: &str, options: &EngineOptions, generation: u64) -> Result<Self> {
        let device = Device::by_name(name)?;
        let is_iwarp = device.transport() == TransportType::IWARP;
        if !is_iwarp && device.transport() != TransportType::IB {
            return Err(unsupported(&device));
        }
        let context = device.open()?;
        let port = context.query_port(options.port_num)?;
        let rc_path = || -> Result<RcPath> {
            let gid = context.select_gid(options.port_num, &GidQuery::default())?;
            let limits = context.query_device()?;
            let reads = |max: u32| u8::try_from(max.min(MAX_READS)).unwrap_or(1);
            let path = RcPath::new(options.port_num, gid.entry.index, port.active_mtu)
                .timeout(options.timeout)
                .retry_cnt(options.retry_cnt)
                .max_rd_atomic(reads(limits.max_qp_init_rd_atom))
                .max_dest_rd_atomic(reads(limits.max_qp_rd_atom));
            Ok(path.access(ACCESS))
        };
        let path = (!is_iwarp).then(rc_path).transpose()?;
        Ok(Self {
            generation,
            pd: context.alloc_pd()?,
            channel: context.create_comp_channel()?,
            events: context.async_events()?,
            path,
            max_message: usize::try_from(port.max_msg_sz).unwrap_or(usize::MAX),
        })
    }
}

fn unsupported(device: &Device) -> Error {
    let (name, transport) = (device.name(), device.transport());
    let what = format!("{name} ({transport}) has no reliable connections");
    Error::new(ErrorKind::Unsupported, "open an engine", what)
        .with_help("use InfiniBand, RoCE or iWARP devices")
}

impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nic")
            .field("device", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::memory::region::{Owner, Region};
    use fake_provider::{Fake, Profile};
    use ibverbs::MemoryOptions;

    #[test]
    fn an_earlier_generation_of_a_device_is_not_used() {
        let fake = Fake::new(Profile::RXE);
        let nic = Nic::open(0, fake.name(), &EngineOptions::new()).expect("opened");
        let owner = Owner {
            id: 0,
            releases: Arc::default(),
        };
        let options = MemoryOptions::new();
        let region = Region::alloc(&owner, &[nic.domain()], 64, options).expect("region");
        let now = Instant::now();
        let first = nic.device().expect("open");
        fake.raise(rdma_sys::IBV_EVENT_DEVICE_FATAL);
        nic.poll_events(now);
        assert!(nic.device().is_none() && nic.down(0).is_some());
        assert!(nic.reopen(now).is_none(), "too early");
        let later = lock(&nic.state).retry_at.expect("is opened again");
        let open = nic.reopen(later).expect("opened again");
        nic.reopened(open);
        assert!(
            nic.reopen(later + Duration::from_secs(60)).is_none(),
            "open"
        );
        assert!(nic.down(0).is_some() && nic.down(1).is_none());
        let late = Failure::new(ErrorKind::Disconnected, "of the first one");
        nic.fail(&first, later, &late);
        let domain = nic.domain().expect("the second one is open");
        region.0.register_again(0, &domain).expect("registered");
        assert!(region.0.memory(0, 0).is_none() && region.0.memory(0, 1).is_some());
    }
}
