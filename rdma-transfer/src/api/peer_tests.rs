//! Paths and jobs of two engines without threads, in states that a program cannot cause at will.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread;

use fake_provider::{Fake, Profile, Verb};
use ibverbs::RemoteMemory;

use super::*;
use crate::api::engine::Engine;
use crate::device::Step;
use crate::device::queue::Queue;
use crate::memory::region::tests::Watching;
use crate::options::EngineOptions;
use crate::protocol::control::StreamControl;
use crate::runtime::peer::MAX_MESSAGES;

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(1);
/// Length of the regions, and of the pieces of a transfer.
const LEN: usize = 64;
const STRIPE: usize = 8;
/// Maximum number of requests in flight. The device grants more.
const SENDS: usize = 4;

/// Two engines that are connected by one path.
struct Pair {
    /// Each engine as the other one sees it.
    peers: [Peer; 2],
    source: Region,
    target: Region,
    engines: [Engine; 2],
    fake: Fake,
    now: Instant,
}

impl Pair {
    fn new() -> Self {
        let options = EngineOptions::new()
            .manual(true)
            .stripe(STRIPE)
            .max_send_wr(u32::try_from(SENDS).expect("fits"))
            .stall(SECOND)
            .settle(SECOND);
        Self::with([options; 2])
    }

    fn with(options: [EngineOptions; 2]) -> Self {
        let fake = Fake::new(Profile::RXE);
        let engines = options.map(|options| Engine::open(&[fake.name()], options).expect("engine"));
        let (of_a, of_b) = UnixStream::pair().expect("sockets");
        let [a, b] = &engines;
        let peers = [(a, of_a), (b, of_b)].map(|(engine, stream)| {
            let control = StreamControl::new(stream).expect("non-blocking");
            engine.connect(control).expect("connects")
        });
        let [source, target] = [a, b].map(|engine| engine.alloc(LEN).expect("region"));
        source.write(0, &[7; LEN]).expect("in range");
        Self {
            peers,
            source,
            target,
            engines,
            fake,
            now: Instant::now(),
        }
    }

    /// Returns a pair whose path is ready on both sides.
    fn ready() -> Self {
        let mut pair = Self::new();
        pair.run_until_ready();
        pair
    }

    fn run_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let end = self.now + 100 * SECOND;
        while !condition(self) {
            assert!(self.now < end, "{what}");
            self.now += TICK;
            self.engines.iter().for_each(|engine| engine.poll(self.now));
        }
    }

    fn run_until_ready(&mut self) {
        let is_ready = |peer: &Peer| peer.paths().first().is_some_and(|path| path.is_ready);
        self.run_until("the path is ready", |pair| pair.peers.iter().all(is_ready));
    }

    /// Lets time pass, and advances the first engine.
    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.engines[0].poll(self.now);
    }

    /// Returns the state of the peer of one of the engines.
    fn state(&self, engine: usize) -> MutexGuard<'_, State> {
        lock(&self.peers[engine].0.inner.state)
    }

    /// Returns the state of the path of the first engine.
    fn path(&self) -> PathStatus {
        self.peers[0].paths().remove(0)
    }

    /// Ends what [`begin_to_destroy`](Self::begin_to_destroy) has begun.
    fn end_destruction(&self) {
        let inner = &self.peers[0].0.inner;
        self.state(0).closed(&inner.core, 0, self.now);
        inner.changed.notify_all();
    }

    fn fail(&self) {
        self.state(0).paths[0].fail(&reason());
    }

    /// Destroys the queue pair of the first engine, as the thread of the device does. Returns it
    /// before the last step.
    fn begin_to_destroy(&self) -> Queue {
        let mut state = self.state(0);
        state.paths[0].fail(&reason());
        let Step::Destroy(mut queue, waiting) = state.paths[0].next_step(self.now, false) else {
            panic!("the path has a queue pair");
        };
        let events = queue.drain();
        let core = &self.peers[0].0.inner.core;
        state.drained(core, 0, &mut queue, events, waiting);
        *queue
    }

    fn write(&self, imm: Option<u32>) -> Transfer {
        let mut options = TransferOptions::new();
        options.imm = imm;
        self.write_bytes(LEN, options)
    }

    fn write_bytes(&self, len: usize, options: TransferOptions) -> Transfer {
        let (remote, span) = (self.target.remote(), [Span::new(0, 0, len)]);
        let transfer = self.peers[0].write(&self.source, &remote, &span, options);
        transfer.expect("write")
    }

    /// Returns `true` if the second engine counts no notice of the first transfer anymore.
    fn is_counted_or_abandoned(&self) -> bool {
        self.state(1).arrivals.has(0, u32::MAX)
    }

    fn is_written(&self) -> bool {
        let mut bytes = [0; LEN];
        self.target.read(0, &mut bytes).expect("in range");
        bytes == [7; LEN]
    }
}

fn reason() -> Failure {
    Failure::new(ErrorKind::Os, "a failure of the test")
}

#[test]
fn nothing_is_posted_on_a_failed_path() {
    let mut pair = Pair::ready();
    pair.fail();
    let later = Failure::new(ErrorKind::Os, "a later failure");
    pair.state(0).paths[0].fail(&later);
    let transfer = pair.write(None);
    assert_eq!(pair.path().in_flight, 0);
    pair.run_until("written", |_| transfer.has_ended());
    transfer.wait(Duration::ZERO).expect("written");
    assert!(pair.is_written());
    pair.run_until_ready();
    // The next queue pairs are not connected with those of before.
    let failures = pair.peers.each_ref().map(|peer| peer.paths()[0].failures);
    assert_eq!(failures, [1, 1]);
    let failure = pair.path().last_failure;
    assert_eq!(failure.as_deref(), Some("a failure of the test"));
    let nic = &pair.peers[0].0.inner.core.nics[0];
    assert_eq!(nic.completion_queues(), 1, "that of before is forgotten");
}

#[test]
fn a_failed_path_is_not_ready_although_its_probe_has_arrived() {
    let mut pair = Pair::new();
    let has_requests = |path: &PathStatus| path.in_flight > 0;
    let is_probed = |pair: &Pair| pair.peers[0].paths().first().is_some_and(has_requests);
    pair.run_until("the probe is posted", is_probed);
    let was_ready = pair.path().is_ready;
    let queue = pair.begin_to_destroy();
    let is_ready = pair.path().is_ready;
    queue.destroy().expect("destroyed");
    pair.end_destruction();
    assert_eq!((was_ready, is_ready), (false, false));
    assert_eq!(pair.path().failures, 1);
}

/// The device would acknowledge it, so that the sender does not repeat it.
#[test]
fn nothing_arrives_between_the_last_poll_and_the_destruction() {
    let mut pair = Pair::ready();
    let queue = pair.begin_to_destroy();
    let options = TransferOptions::new().imm(1);
    let transfer = pair.peers[1].write(&pair.target, &pair.source.remote(), &[], options);
    let transfer = transfer.expect("write");
    pair.engines[1].poll(pair.now);
    assert!(!transfer.has_ended());
    queue.destroy().expect("destroyed");
    pair.end_destruction();
    pair.run_until("counted", |pair| {
        pair.engines[0].imm_counter(1).count() == 1
    });
}

#[test]
fn a_path_fails_after_a_stall_with_requests_in_flight() {
    let mut pair = Pair::ready();
    pair.wait(10 * SECOND);
    pair.fake.stall();
    let transfer = pair.write(None);
    assert_eq!(
        pair.path().in_flight,
        SENDS,
        "not as many as the device grants"
    );
    pair.wait(SECOND);
    assert_eq!(pair.path().failures, 0, "no request was in flight before");
    pair.wait(TICK);
    assert_eq!(pair.path().failures, 1);
    assert!(!transfer.has_ended(), "the peer has not closed its side");
}

#[test]
fn a_completion_prolongs_the_wait_for_the_next_one() {
    let mut pair = Pair::ready();
    let first = pair.write_bytes(STRIPE, TransferOptions::new());
    pair.fake.stall();
    let second = pair.write_bytes(STRIPE, TransferOptions::new());
    pair.wait(SECOND);
    assert!(first.has_ended() && !second.has_ended());
    pair.wait(SECOND);
    assert_eq!(pair.path().failures, 0);
    pair.wait(TICK);
    assert_eq!(pair.path().failures, 1);
}

#[test]
fn a_disconnection_waits_for_the_queue_pair() {
    let pair = Pair::ready();
    pair.fake.stall();
    let transfer = pair.write(None);
    let queue = pair.begin_to_destroy();
    let peer = &pair.peers[0];
    let (sender, disconnected) = channel();
    let before = thread::scope(|scope| {
        scope.spawn(move || {
            peer.disconnect();
            let _ = sender.send(());
        });
        while pair.state(0).ended.is_none() {
            thread::yield_now();
        }
        let waits = disconnected.recv_timeout(20 * TICK).is_err();
        let before = (waits, transfer.has_ended(), peer.is_connected());
        queue.destroy().expect("destroyed");
        pair.end_destruction();
        before
    });
    assert_eq!(before, (true, false, true));
    assert!(!peer.is_connected());
    let error = transfer.wait(Duration::ZERO).expect_err("disconnected");
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
}

#[test]
fn a_disconnection_ends_every_transfer() {
    #[derive(Debug, PartialEq)]
    enum Jobs {
        WithoutPath,
        OnThePath,
        /// The peer has not closed its side.
        NotSettled,
    }
    for jobs in [Jobs::WithoutPath, Jobs::OnThePath, Jobs::NotSettled] {
        let mut pair = Pair::new();
        if jobs != Jobs::WithoutPath {
            pair.run_until_ready();
        }
        pair.fake.stall();
        // The second one waits for the first one.
        let transfers = [pair.write(None), pair.write(Some(1))];
        if jobs == Jobs::NotSettled {
            pair.fail();
            pair.wait(TICK);
        }
        assert!(!transfers.iter().any(Transfer::has_ended), "{jobs:?}");
        let peer = &pair.peers[0];
        if jobs == Jobs::OnThePath {
            // As after the control connection was lost.
            pair.state(0).end(&reason());
            assert!(!transfers.iter().any(Transfer::has_ended) && peer.is_connected());
        }
        peer.disconnect();
        assert!(!peer.is_connected());
        pair.peers[1].offer("late", &pair.target).expect("offered");
        pair.engines[0].poll(pair.now);
        assert!(pair.state(0).offers.is_empty(), "{jobs:?}");
        for transfer in transfers {
            assert!(transfer.has_ended(), "{jobs:?}");
            let error = transfer.wait(Duration::ZERO).expect_err("disconnected");
            let is_first = error.to_string().contains("of the test");
            assert_eq!(is_first, jobs == Jobs::OnThePath, "{error}");
        }
    }
}

/// A connection that has read all messages of a peer before the first one is handled.
struct Backlog(VecDeque<Vec<u8>>, UnixStream);

impl Control for Backlog {
    fn send(&mut self, _: Vec<u8>) -> std::io::Result<()> {
        Ok(())
    }

    fn receive(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        Ok(self.0.pop_front())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.1.as_fd())
    }
}

/// Returns a hello and this number of regions, "0" and up.
fn offers(count: usize) -> VecDeque<Vec<u8>> {
    let hello = Message::Hello {
        version: VERSION,
        random: 0,
        devices: 1,
        queue_pairs: 1,
    };
    let key = RemoteMemory {
        addr: 0,
        len: 8,
        rkey: 1,
    };
    let offer = |name: usize| Message::Offer {
        name: name.to_string(),
        region: RemoteRegion {
            id: 0,
            keys: vec![key],
        },
    };
    let messages = [hello].into_iter().chain((0..count).map(offer));
    let encode = |message: Message| message.to_bytes().expect("encoded");
    messages.map(encode).collect()
}

#[test]
fn a_flood_of_messages_gives_others_their_turn() {
    let (_open, descriptor) = UnixStream::pair().expect("sockets");
    let mut pair = Pair::ready();
    let flood = Backlog(offers(1000), descriptor);
    let hostile = pair.engines[1].connect(flood).expect("connects");
    for turn in 1..10 {
        let name = turn.to_string();
        pair.peers[0].offer(&name, &pair.source).expect("offered");
        pair.engines[1].poll(pair.now);
        let honest = pair.peers[1].remote(&name, Duration::ZERO);
        honest.expect("it does not wait for the flood");
        let handled = lock(&hostile.0.inner.state).offers.len();
        assert_eq!(handled, turn * MAX_MESSAGES - 1);
    }
    pair.run_until("all are handled", |_| {
        hostile.remote("999", Duration::ZERO).is_ok()
    });
}

#[test]
fn messages_are_handled_at_a_limited_rate() {
    let (_open, descriptor) = UnixStream::pair().expect("sockets");
    let pair = Pair::ready();
    let flood = Backlog(offers(4096), descriptor);
    let hostile = pair.engines[1].connect(flood).expect("connects");
    let (mut now, mut handled) = (pair.now, 0);
    for _ in 0..2 {
        (0..4096).for_each(|_| pair.engines[1].poll(now));
        let count = lock(&hostile.0.inner.state).offers.len() - handled;
        assert!((500..3000).contains(&count), "{count} at once");
        handled += count;
        now += 10 * TICK;
    }
    pair.engines[1].poll(now);
    assert!(lock(&hostile.0.inner.state).offers.len() > handled);
}

/// The queue pair receives more while it is polled.
#[test]
fn notices_without_end_are_processed_in_turns() {
    let many = EngineOptions::new().manual(true);
    let mut pair = Pair::with([many, many.max_send_wr(2).max_recv_wr(2)]);
    pair.run_until_ready();
    let options = TransferOptions::new().imm(1);
    let transfers: Vec<_> = (0..128).map(|_| pair.write_bytes(0, options)).collect();
    let core = &pair.peers[1].0.inner.core;
    pair.state(1).advance(core, 0, pair.now);
    let count = pair.engines[1].imm_counter(1).count();
    assert!((1..64).contains(&count), "{count} at once");
    pair.run_until("all have arrived", |pair| {
        pair.engines[1].imm_counter(1).count() == transfers.len() as u64
    });
}

/// Otherwise the thread would wait after each turn until the descriptor is readable.
#[test]
fn messages_that_were_read_are_handled_at_once() {
    let fake = Fake::new(Profile::RXE);
    let engine = Engine::open(&[fake.name()], EngineOptions::new()).expect("engine");
    let (_open, descriptor) = UnixStream::pair().expect("sockets");
    let peer = engine.connect(Backlog(offers(4096), descriptor));
    let peer = peer.expect("connects");
    // A fraction of the time that all turns take with a wait after each.
    peer.remote("4095", 10 * SECOND).expect("handled");
}

#[test]
fn memory_counts_as_released_after_its_queue_pair() {
    for destroys in [true, false] {
        let pair = Pair::ready();
        let value = Watching::default();
        let (uses, seen) = (Arc::clone(&value.uses), Arc::clone(&value.seen));
        let region = pair.engines[0].register(value).expect("registered");
        uses.get_or_init(|| region.0.uses());
        pair.fake.stall();
        let span = [Span::new(0, 0, STRIPE)];
        let options = TransferOptions::new();
        let transfer = pair.peers[0].write(&region, &pair.target.remote(), &span, options);
        let _transfer = transfer.expect("write");
        let release = region.release();
        let queue = pair.begin_to_destroy();
        pair.state(0).paths[0].set_unsettled(Vec::new());
        let was_released = release.is_done();
        drop(release);
        if destroys {
            queue.destroy().expect("destroyed");
        } else {
            drop(queue);
        }
        pair.end_destruction();
        assert!(!was_released, "the queue pair holds the memory");
        let users = seen.load(Ordering::Relaxed);
        assert_eq!(users, 1, "the queue pair, when the memory was dropped");
    }
}

#[test]
fn memory_of_a_queue_pair_that_remains_is_not_released() {
    let mut pair = Pair::ready();
    let region = pair.engines[0].alloc(LEN).expect("region");
    let remote = pair.target.remote();
    pair.fake.stall();
    let all = [Span::new(0, 0, LEN)];
    let transfer = pair.peers[0].write(&region, &remote, &all, TransferOptions::new());
    let transfer = transfer.expect("write");
    let release = region.release();
    pair.fake.fail_next(Verb::DestroyQp, 5);
    pair.fail();
    pair.wait(TICK);
    let error = transfer.wait(Duration::ZERO).expect_err("disconnected");
    assert!(error.to_string().contains("EIO"), "{error}");
    assert!(!pair.peers[0].is_connected() && !release.is_done());
}

/// The process of the peer hangs.
#[test]
fn a_canceled_transfer_ends_when_the_peer_has_not_confirmed_it() {
    let mut pair = Pair::ready();
    pair.fake.stall();
    let (canceled, other) = (pair.write(Some(1)), pair.write(Some(2)));
    canceled.cancel();
    let queue = pair.begin_to_destroy();
    pair.wait(10 * SECOND);
    let was_early = canceled.has_ended();
    queue.destroy().expect("destroyed");
    pair.end_destruction();
    assert!(!was_early, "its queue pair existed");
    pair.wait(999 * TICK);
    assert!(!canceled.has_ended(), "the peer can still confirm it");
    pair.wait(TICK);
    assert!(canceled.has_ended() && !canceled.is_confirmed());
    assert!(!other.has_ended());
    pair.fake.resume();
    pair.run_until("the other one is written", |_| other.has_ended());
    other.wait(Duration::ZERO).expect("written");
    pair.run_until_ready();
    assert!(other.is_confirmed() && pair.is_counted_or_abandoned());
    let counts = [1, 2].map(|value| pair.engines[1].imm_counter(value).count());
    assert_eq!(counts, [0, 1]);
}

#[test]
fn the_peer_forgets_a_canceled_transfer() {
    let mut pair = Pair::ready();
    pair.fake.stall();
    let transfer = pair.write(Some(1));
    transfer.cancel();
    pair.wait(TICK);
    assert!(!transfer.has_ended(), "requests are in flight");
    pair.fake.resume();
    pair.wait(TICK);
    assert!(transfer.has_ended() && transfer.is_confirmed());
    assert!(transfer.bytes_done() < transfer.bytes());
    // Completions before the control messages.
    let core = &pair.peers[1].0.inner.core;
    core.poll_device(&core.nics[0], pair.now);
    assert_eq!(
        pair.engines[1].imm_counter(1).count(),
        0,
        "no notice was sent"
    );
    pair.run_until("forgotten", Pair::is_counted_or_abandoned);
    assert_eq!(pair.path().failures, 0);
}

/// One job was never posted, the other one is in flight when its path fails.
#[test]
fn the_bytes_of_an_abandoned_transfer_are_not_counted() {
    // More pieces than a job has.
    const LONG: usize = 65 * STRIPE;
    let mut pair = Pair::ready();
    let [source, target] = pair.engines.each_ref().map(|engine| engine.alloc(LONG));
    let (source, target) = (source.expect("region"), target.expect("region"));
    pair.fake.stall();
    let (all, options) = ([Span::new(0, 0, LONG)], TransferOptions::new().imm(1));
    let transfer = pair.peers[0].write(&source, &target.remote(), &all, options);
    let transfer = transfer.expect("write");
    transfer.cancel();
    pair.wait(TICK);
    pair.fail();
    pair.run_until("ended", |_| transfer.has_ended());
    assert!(transfer.is_confirmed());
    assert_eq!(transfer.bytes_done(), 0);
    pair.run_until("forgotten", Pair::is_counted_or_abandoned);
}

#[test]
fn the_jobs_of_immediates_in_flight_are_limited() {
    let mut pair = Pair::ready();
    let write = |pair: &Pair, options| {
        let remote = pair.target.remote();
        pair.peers[0].write(&pair.source, &remote, &[Span::new(0, 0, STRIPE)], options)
    };
    let options = TransferOptions::new().imm(1);
    pair.fake.stall();
    pair.state(0).jobs_with_notice = MAX_JOBS - 1;
    let last = write(&pair, options).expect("within the limit");
    let error = write(&pair, options).expect_err("beyond the limit");
    assert_eq!(error.kind(), ErrorKind::QueueFull, "{error}");
    let other = write(&pair, TransferOptions::new()).expect("without an immediate");
    pair.fake.resume();
    pair.run_until("both have ended", |_| last.has_ended() && other.has_ended());
    let _next = write(&pair, options).expect("within the limit again");
}

#[test]
fn the_immediates_of_a_hostile_peer_do_not_end_another() {
    let mut pair = Pair::ready();
    let (_open, stream) = UnixStream::pair().expect("sockets");
    let control = StreamControl::new(stream).expect("non-blocking");
    let hostile = pair.engines[1].connect(control).expect("connects");
    let state = lock(&hostile.0.inner.state);
    let filled = (0..=u32::MAX).find(|&value| state.immediates.add(value).is_err());
    drop(state);
    let value = filled.expect("there is a limit");
    let transfer = pair.write(Some(value));
    pair.run_until("written", |_| transfer.has_ended());
    transfer.wait(Duration::ZERO).expect("written");
    let counter = pair.engines[1].imm_counter(value);
    pair.run_until("counted", |_| counter.count() == 1);
    assert!(pair.peers.iter().all(Peer::is_connected));
}

#[test]
fn a_device_is_used_again_after_every_region_is_registered() {
    let mut pair = Pair::ready();
    pair.fake.raise(rdma_sys::IBV_EVENT_DEVICE_FATAL);
    pair.wait(TICK);
    let nic = &pair.peers[0].0.inner.core.nics[0];
    assert!(nic.device().is_none());
    pair.fake.fail_next(Verb::RegMr, 12);
    let nic = Arc::clone(nic);
    pair.wait(SECOND);
    assert!(pair.fake.all_faults_happened() && nic.device().is_none());
    let transfer = pair.write(None);
    pair.run_until("written", |_| transfer.has_ended());
    transfer.wait(Duration::ZERO).expect("written");
    assert!(pair.is_written());
}
