//! The state of an engine that its peers and threads share.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{CqId, Error, ErrorKind, Result};
use rdmacm::internal::PollWindow;

use crate::deferred;
use crate::device::nic::{Handler, Nic};
use crate::failure::lock;
use crate::memory::region::{Domain, Owner, PART, RegionMemory};
use crate::options::EngineOptions;
use crate::protocol::immediates::Immediates;
use crate::protocol::signal::Poll;
use crate::waker::{Waker, wait_readable};

/// Time after which a thread looks for lost events while requests are in flight.
const BUSY: Duration = Duration::from_millis(10);
/// The same without requests in flight.
const IDLE: Duration = Duration::from_millis(100);

/// Time after which a thread arms a completion queue again that callers have polled before, if they
/// have not polled it since. A caller that polls needs no event, which costs the thread five system
/// calls. The time doubles as long as they poll.
const MIN_UNARMED: Duration = Duration::from_micros(100);
const MAX_UNARMED: Duration = Duration::from_millis(1);
/// Maximum number of events of completion queues that are processed before everything else. A peer
/// that sends without pause causes events without end.
const MAX_EVENTS: usize = 256;

/// State of the thread of a device between its rounds.
#[derive(Default)]
struct Rounds {
    /// Time of the last round that was not for completions alone.
    polled_at: Option<Instant>,
    /// Completion queues that callers poll, and the time after which the thread looks at them.
    unarmed: Vec<CqId>,
    sleep: Duration,
}

/// The devices, regions and peers of an engine.
pub(crate) struct Core {
    pub(crate) owner: Owner,
    pub(crate) nics: Vec<Arc<Nic>>,
    pub(crate) immediates: Arc<Immediates>,
    pub(crate) options: EngineOptions,
    /// Maximum length of a request in bytes.
    pub(crate) stripe: usize,
    /// All regions. Locked while one is registered, so that a device that is opened again gets
    /// every region.
    pub(crate) regions: Mutex<Vec<Weak<RegionMemory>>>,
    peers: Mutex<Vec<Weak<dyn Handler>>>,
    /// Number of canceled transfers.
    pub(crate) cancels: Arc<AtomicU64>,
    /// Wakes the thread of the control connections.
    pub(crate) control: Waker,
    /// Time for which a thread that waits for a transfer polls.
    pub(crate) window: Arc<PollWindow>,
    stopping: AtomicBool,
}

impl Poll for Core {
    fn poll_for_caller(&self) {
        for peer in self.all_peers() {
            peer.poll_for_caller();
        }
    }
}

impl Core {
    pub(crate) fn new(
        owner: Owner,
        nics: Vec<Arc<Nic>>,
        options: EngineOptions,
        control: Waker,
    ) -> Self {
        let stripes = nics.iter().map(|nic| nic.max_message());
        let polls = !options.manual && !options.busy_poll;
        let poll_time = if polls {
            options.poll_time
        } else {
            Duration::ZERO
        };
        Self {
            owner,
            stripe: stripes.fold(options.stripe.min(PART), usize::min),
            nics,
            immediates: Arc::new(Immediates::new(poll_time)),
            options,
            regions: Mutex::default(),
            peers: Mutex::default(),
            cancels: Arc::default(),
            control,
            window: Arc::new(PollWindow::new(poll_time)),
            stopping: AtomicBool::new(false),
        }
    }

    /// Returns the protection domain of each device that is open.
    pub(crate) fn domains(&self) -> Vec<Option<Domain>> {
        self.nics.iter().map(|nic| nic.domain()).collect()
    }

    pub(crate) fn add_peer(&self, peer: Weak<dyn Handler>) {
        let mut peers = lock(&self.peers);
        peers.retain(|peer| peer.strong_count() > 0);
        peers.push(peer);
    }

    fn all_peers(&self) -> Vec<Arc<dyn Handler>> {
        lock(&self.peers).iter().filter_map(Weak::upgrade).collect()
    }

    /// Advances a device and the paths on it.
    pub(crate) fn poll_device(&self, nic: &Nic, now: Instant) {
        nic.poll_events(now);
        self.reopen(nic, now);
        nic.poll_completions(now, MAX_EVENTS, &mut Vec::new());
        for peer in self.all_peers() {
            peer.poll(nic.index, now);
        }
    }

    /// Processes control messages of all peers. Returns `true` if more of them may have arrived.
    pub(crate) fn poll_control(&self, now: Instant) -> bool {
        let peers = self.all_peers();
        let polled = peers.iter().map(|peer| peer.poll_control(now));
        polled.fold(false, |has_more, more| has_more | more)
    }

    /// Opens a device again after a fatal error, if it is time to, and registers all regions.
    fn reopen(&self, nic: &Nic, now: Instant) {
        let Some(open) = nic.reopen(now) else {
            return;
        };
        let domain = Domain {
            generation: open.generation,
            pd: open.pd.clone(),
        };
        let mut regions = lock(&self.regions);
        let mut keys = Vec::new();
        regions.retain(|region| {
            let Some(region) = region.upgrade() else {
                return false;
            };
            keys.push((region.id, region.register_again(nic.index, &domain)));
            true
        });
        let peers = self.all_peers();
        for (region, key) in keys {
            // Without a key the device is tried again.
            let Ok(key) = key else { return };
            for peer in &peers {
                peer.send_key(region, nic.index, key);
            }
        }
        nic.reopened(open);
    }

    /// Starts the threads.
    pub(crate) fn start(self: &Arc<Self>) -> Result<Vec<thread::JoinHandle<()>>> {
        let mut threads = Vec::new();
        for nic in &self.nics {
            let (core, nic) = (Arc::clone(self), Arc::clone(nic));
            let name = format!("transfer {}", nic.name);
            threads.push(spawn(name, move || core.run_device(&nic))?);
        }
        let core = Arc::clone(self);
        let run = move || core.run_control();
        threads.push(spawn("transfer control".to_owned(), run)?);
        Ok(threads)
    }

    /// Makes the threads end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake();
    }

    /// Wakes all threads.
    pub(crate) fn wake(&self) {
        self.nics.iter().for_each(|nic| nic.waker.wake());
        self.control.wake();
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn run_device(&self, nic: &Nic) {
        let mut rounds = Rounds::default();
        while !self.is_stopping() {
            deferred::run(|| self.step_device(nic, &mut rounds));
        }
    }

    fn step_device(&self, nic: &Nic, rounds: &mut Rounds) {
        if self.options.busy_poll {
            self.poll_device(nic, Instant::now());
            thread::yield_now();
            return;
        }
        let is_busy = self.all_peers().iter().any(|peer| peer.is_busy());
        let limit = if is_busy { BUSY } else { IDLE };
        let open = nic.device();
        let mut fds = vec![nic.waker.as_fd()];
        if let Some(open) = &open {
            fds.extend([open.events.as_fd(), open.channel.as_fd()]);
        }
        let sleep = if rounds.unarmed.is_empty() {
            rounds.sleep = MIN_UNARMED;
            limit
        } else {
            rounds.sleep = (rounds.sleep * 2).min(MAX_UNARMED);
            rounds.sleep
        };
        let ready = wait_readable(&fds, sleep);
        let now = Instant::now();
        if ready[0] {
            nic.waker.clear();
        }
        let has_event = ready.get(2).is_some_and(|&is_ready| is_ready);
        let max = if has_event { MAX_EVENTS } else { 0 };
        nic.poll_completions(now, max, &mut rounds.unarmed);
        // Everything else less often than completions arrive.
        let was_woken = ready.iter().take(2).any(|&is_ready| is_ready);
        let is_due = |at| now >= at + limit / 2;
        if was_woken || rounds.polled_at.is_none_or(is_due) {
            rounds.polled_at = Some(now);
            self.poll_device(nic, now);
        }
    }

    fn run_control(&self) {
        let mut has_more = false;
        while !self.is_stopping() {
            has_more = deferred::run(|| {
                // What a connection has read already does not make its descriptor readable.
                if !has_more {
                    self.wait_for_messages();
                }
                self.poll_control(Instant::now())
            });
        }
    }

    fn wait_for_messages(&self) {
        let peers = self.all_peers();
        let controls: Vec<_> = peers.iter().filter_map(|peer| peer.control()).collect();
        // A connection without a descriptor is asked again and again.
        let limit = if controls.len() < peers.len() {
            BUSY
        } else {
            IDLE
        };
        let mut fds = vec![self.control.as_fd()];
        fds.extend(controls.iter().map(AsFd::as_fd));
        drop(peers);
        if wait_readable(&fds, limit)[0] {
            self.control.clear();
        }
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<thread::JoinHandle<()>> {
    thread::Builder::new()
        .name(name)
        .spawn(run)
        .map_err(|error| Error::new(ErrorKind::Os, "start a thread", error.to_string()))
}

/// The handles of the program on an engine. Dropping the last one ends the threads.
pub(crate) struct Shared {
    pub(crate) core: Arc<Core>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Shared {
    pub(crate) fn new(core: Arc<Core>) -> Result<Self> {
        let threads = if core.options.manual {
            Vec::new()
        } else {
            core.start()?
        };
        Ok(Self {
            core,
            threads: Mutex::new(threads),
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.core.stop();
        let this = thread::current().id();
        for thread in lock(&self.threads).drain(..) {
            // A value of the program can own the last handle, and this thread drops it. And a
            // thread that panicked has nothing left to do.
            if thread.thread().id() != this {
                let _ = thread.join();
            }
        }
    }
}
