//! Failures of devices of the fake provider, and what transfers do then.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fake_provider::{Fake, Profile, Verb};
use ibverbs::RemoteMemory;
use rdma_transfer::{
    Control, Engine, EngineOptions, ErrorKind, Peer, Region, Span, StreamControl, TransferOptions,
};

use crate::common::{SOON, bytes, connect, filled, imm, pattern, wait_ready, wait_until};
use crate::stress::{Random, Stress, World};

/// Values of `enum ibv_event_type`.
const DEVICE_FATAL: u32 = rdma_sys::IBV_EVENT_DEVICE_FATAL;
const PORT_ERR: u32 = rdma_sys::IBV_EVENT_PORT_ERR;
const CQ_ERR: u32 = rdma_sys::IBV_EVENT_CQ_ERR;

fn engine(fakes: &[Fake], options: EngineOptions) -> Engine {
    let names: Vec<&str> = fakes.iter().map(Fake::name).collect();
    Engine::open(&names, options).expect("engine")
}

fn quick() -> EngineOptions {
    EngineOptions::new()
        .stripe(64)
        .max_send_wr(8)
        .stall(Duration::from_millis(50))
        .min_backoff(Duration::from_millis(5))
        .max_backoff(Duration::from_millis(50))
}

fn failures(peer: &Peer) -> u64 {
    peer.paths().iter().map(|path| path.failures).sum()
}

/// An adapter fails on one side while transfers use it (Mooncake#2960).
#[test]
fn a_stuck_device_delays_transfers_only() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    let (a, b) = (engine(&fakes, quick()), engine(&fakes, quick()));
    let (peer, a_of_b) = connect(&a, &b);
    let source = filled(&a, 8192, 1);
    let target = b.alloc(8192).expect("region");
    wait_ready(&peer);
    wait_ready(&a_of_b);
    fakes[0].stall();
    let all = [Span::new(0, 0, 8192)];
    let write = peer
        .write(&source, &target.remote(), &all, imm(1))
        .expect("write");
    let copy = b.alloc(8192).expect("region");
    let read = a_of_b
        .read(&copy, &source.remote(), &all, TransferOptions::new())
        .expect("read");
    write.wait(SOON).expect("written over the other device");
    read.wait(SOON).expect("read over the other device");
    b.imm_counter(1).wait(1, SOON).expect("arrived");
    assert_eq!(bytes(&target), pattern(8192, 1));
    assert_eq!(bytes(&copy), pattern(8192, 1));
    assert!(!peer.paths()[0].is_ready && peer.paths()[1].is_ready);
    // The requests that the device has kept are gone with their queue pairs.
    target.write(0, &[7; 8192]).expect("in range");
    fakes[0].resume();
    wait_ready(&peer);
    assert_eq!(bytes(&target), [7; 8192]);
    assert_eq!(b.imm_counter(1).count(), 0);
    let options = imm(2).device(0);
    peer.write(&source, &target.remote(), &all, options)
        .expect("write")
        .wait(SOON)
        .expect("the device is used again");
    assert_eq!(bytes(&target), pattern(8192, 1));
}

/// The connection recovers from a failure without the program (NIXL#149).
#[test]
fn transfers_wait_while_no_device_works() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    let (a, b) = (engine(&fakes, quick()), engine(&fakes, quick()));
    let (peer, _a) = connect(&a, &b);
    let source = filled(&a, 8192, 1);
    let target = b.alloc(8192).expect("region");
    wait_ready(&peer);
    fakes.iter().for_each(Fake::stall);
    let all = [Span::new(0, 0, 8192)];
    let transfer = peer
        .write(&source, &target.remote(), &all, imm(1))
        .expect("write");
    wait_until("both paths fail", || {
        peer.paths().iter().all(|path| path.failures > 0)
    });
    assert!(!transfer.has_ended());
    let deadline = imm(2).deadline(Duration::from_millis(1));
    let late = peer
        .write(&source, &target.remote(), &all, deadline)
        .expect("write");
    late.wait(SOON).expect_err("the deadline has passed");
    fakes.iter().for_each(Fake::resume);
    transfer.wait(SOON).expect("written");
    b.imm_counter(1).wait(1, SOON).expect("arrived");
    assert_eq!(bytes(&target), pattern(8192, 1));
}

/// The process of the peer hangs: its control connection stays open, and it answers nothing.
#[test]
fn a_deadline_holds_although_the_peer_hangs() {
    let fakes = [Fake::new(Profile::RXE)];
    let [fake] = &fakes;
    let brief = Duration::from_millis(20);
    let options = EngineOptions::new()
        .stall(brief)
        .settle(brief)
        .min_backoff(Duration::from_millis(1));
    let (a, b) = (
        engine(&fakes, options),
        engine(&fakes, options.manual(true)),
    );
    let (peer, a_of_b) = connect(&a, &b);
    let [source, other] = [1, 2].map(|seed| filled(&a, 4096, seed));
    let target = b.alloc(4096).expect("region");
    let run = |peer: &Peer| {
        wait_until("the path is ready", || {
            b.poll(Instant::now());
            peer.paths().first().is_some_and(|path| path.is_ready)
        });
    };
    run(&peer);
    run(&a_of_b);
    // `b` is not polled anymore.
    fake.stall();
    let all = [Span::new(0, 0, 4096)];
    let write = |source: &Region, options| {
        let transfer = peer.write(source, &target.remote(), &all, options);
        transfer.expect("write")
    };
    let late = write(&source, imm(1).deadline(brief));
    let patient = write(&other, imm(2));
    let error = late.wait(SOON).expect_err("the deadline has passed");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(late.has_ended() && !late.is_confirmed());
    assert!(!patient.has_ended(), "it has no deadline");
    let (first, second) = (source.release(), other.release());
    first.wait(SOON).expect("no device of this side uses it");
    assert!(!second.is_done(), "the other transfer needs it");

    fake.resume();
    let arrived = b.imm_counter(2);
    wait_until("the other transfer has arrived", || {
        b.poll(Instant::now());
        arrived.count() == 1 && patient.has_ended()
    });
    patient.wait(SOON).expect("written");
    assert!(patient.is_confirmed());
    assert_eq!(bytes(&target), pattern(4096, 2));
    assert_eq!(b.imm_counter(1).count(), 0, "its queue pair was destroyed");
    // The peer forgets the number of the first transfer, so later ones are counted.
    let next = write(&filled(&a, 4096, 3), imm(3));
    let arrived = b.imm_counter(3);
    wait_until("the next one has arrived", || {
        b.poll(Instant::now());
        arrived.count() == 1 && next.has_ended()
    });
    assert_eq!(bytes(&target), pattern(4096, 3));
}

/// An error of a port or of completion queues during transfers, and the device works again
/// (Mooncake#2960).
#[test]
fn a_path_is_left_at_once_after_an_event() {
    for event in [PORT_ERR, CQ_ERR] {
        let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
        // The stall would be noticed after an hour.
        let options = quick().stall(Duration::from_secs(3600));
        let (a, b) = (engine(&fakes, options), engine(&fakes, options));
        let (peer, _a) = connect(&a, &b);
        let source = filled(&a, 8192, 1);
        let target = b.alloc(8192).expect("region");
        wait_ready(&peer);
        fakes[1].stall();
        let all = [Span::new(0, 0, 8192)];
        let transfer = peer
            .write(&source, &target.remote(), &all, imm(1))
            .expect("write");
        fakes[1].raise(event);
        transfer.wait(SOON).expect("written over the other device");
        assert_eq!(bytes(&target), pattern(8192, 1));
        let failure = peer.paths()[1].last_failure.clone().expect("a failure");
        assert!(
            failure.contains("reported") || failure.contains("closed"),
            "{failure}"
        );
        fakes[1].resume();
        wait_ready(&peer);
    }
}

#[test]
fn a_device_is_opened_again_after_a_fatal_error() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    let (a, b) = (engine(&fakes, quick()), engine(&fakes, quick()));
    let (peer, _a) = connect(&a, &b);
    let source = filled(&a, 8192, 1);
    let target = b.alloc(8192).expect("region");
    // The peer has the keys of the first time.
    let remote = target.remote();
    let all = [Span::new(0, 0, 8192)];
    wait_ready(&peer);
    for (round, device) in [(0, 0), (1, 1), (2, 0)] {
        let before = failures(&peer);
        fakes[device].stall();
        let transfer = peer
            .write(&source, &remote, &all, imm(round))
            .expect("write");
        fakes[device].raise(DEVICE_FATAL);
        transfer.wait(SOON).expect("written over the other device");
        fakes[device].resume();
        wait_until("the path fails", || failures(&peer) > before);
        wait_ready(&peer);
        target.write(0, &[0; 8192]).expect("in range");
        peer.write(&source, &remote, &all, imm(round).device(device))
            .expect("write")
            .wait(SOON)
            .expect("written with the new keys");
        b.imm_counter(round).wait(2, SOON).expect("arrived");
        assert_eq!(bytes(&target), pattern(8192, 1));
        assert_eq!(peer.paths()[device].in_flight, 0);
    }
    let region = a.alloc(8).expect("registered with the new devices");
    assert_ne!(target.remote(), remote);
    drop((peer, region));
}

#[test]
fn memory_can_be_allocated_while_a_device_has_failed() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    let (a, b) = (engine(&fakes, quick()), engine(&fakes, quick()));
    let (peer, _a) = connect(&a, &b);
    wait_ready(&peer);
    for _ in 0..40 {
        fakes[0].fail_next(Verb::OpenDevice, 19);
    }
    fakes[0].raise(DEVICE_FATAL);
    wait_until("the path fails", || !peer.paths()[0].is_ready);
    let source = filled(&a, 8192, 1);
    let target = b.alloc(8192).expect("region");
    let remote = target.remote();
    let all = [Span::new(0, 0, 8192)];
    peer.write(&source, &remote, &all, imm(1))
        .expect("write")
        .wait(SOON)
        .expect("written");
    wait_ready(&peer);
    peer.write(&source, &remote, &all, imm(1).device(0))
        .expect("write")
        .wait(SOON)
        .expect("with the key that was sent later");
    assert_eq!(bytes(&target), pattern(8192, 1));
}

#[test]
fn a_path_that_never_works_is_not_tried_often() {
    let fakes = [Fake::new(Profile::RXE)];
    let options = EngineOptions::new()
        .manual(true)
        .min_backoff(Duration::from_millis(10))
        .max_backoff(Duration::from_secs(5));
    let (a, b) = (engine(&fakes, options), engine(&fakes, options));
    let (peer, _a) = connect(&a, &b);
    for _ in 0..1000 {
        fakes[0].fail_next(Verb::ModifyQp, 12);
    }
    let start = Instant::now();
    for millisecond in 0..60_000 {
        let now = start + Duration::from_millis(millisecond);
        a.poll(now);
        b.poll(now);
    }
    // 10 ms, 20 ms, … to 5 s, and then every 5 s or more.
    let tries = failures(&peer);
    assert!((10..=22).contains(&tries), "{tries} tries in a minute");
    let last = peer.paths()[0].last_failure.clone().expect("a failure");
    assert!(last.contains("ENOMEM"), "{last}");
}

/// Fake devices whose time passes by a millisecond in each step.
struct Fakes {
    devices: [Fake; 4],
    now: Instant,
    /// The devices that are stuck, and until when.
    stuck: Vec<(usize, Instant)>,
}

impl World for Fakes {
    fn step(&mut self) -> Instant {
        self.now += Duration::from_millis(1);
        let Self {
            devices,
            now,
            stuck,
        } = self;
        stuck.retain(|&(device, until)| {
            if until <= *now {
                devices[device].resume();
            }
            until > *now
        });
        self.now
    }

    fn fault(&mut self, random: &mut Random) {
        let device = random.below(4);
        let fake = &self.devices[device];
        match random.below(8) {
            0..=2 => {
                fake.stall();
                let time = Duration::from_millis(random.next() % 200);
                self.stuck.push((device, self.now + time));
            }
            3 => fake.raise(PORT_ERR),
            4 => fake.raise(DEVICE_FATAL),
            5 => fake.fail_next(Verb::CreateCq, 12),
            6 => fake.fail_next(Verb::ModifyQp, 22),
            _ => fake.fail_next(Verb::PollCq, 5),
        }
    }
}

#[test]
fn no_byte_is_wrong_or_late_under_random_faults() {
    for seed in 0..2 {
        let fakes = [Profile::RXE; 4].map(Fake::new);
        let options = quick().manual(true);
        let (a, b) = (engine(&fakes, options), engine(&fakes, options));
        let mut world = Fakes {
            devices: fakes,
            now: Instant::now(),
            stuck: Vec::new(),
        };
        let outcome = Stress::new(&mut world, &a, &b, seed).run(300, 20);
        assert!(
            outcome.transfers > 300 && outcome.path_failures > 100,
            "{outcome:?}"
        );
        assert!(
            outcome.deadlines > 10 && outcome.released > 10,
            "{outcome:?}"
        );
    }
}

type Hook = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// A control connection that shows each message to a function before it sends it.
struct Watched<F>(StreamControl<UnixStream>, F);

impl<F: FnMut(&str) + Send> Control for Watched<F> {
    fn send(&mut self, message: Vec<u8>) -> io::Result<()> {
        (self.1)(std::str::from_utf8(&message).expect("JSON"));
        self.0.send(message)
    }

    fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.0.receive()
    }
}

/// Connects two engines, and watches the messages of both sides.
fn connect_watched(
    engines: [&Engine; 2],
    watch: impl FnMut(&str) + Clone + Send + 'static,
) -> [Peer; 2] {
    let (of_a, of_b) = UnixStream::pair().expect("sockets");
    let mut streams = [of_a, of_b].into_iter();
    engines.map(|engine| {
        let stream = StreamControl::new(streams.next().expect("two")).expect("control");
        engine
            .connect(Watched(stream, watch.clone()))
            .expect("connects")
    })
}

/// Memory that is registered after a fatal error of one device, while a path of another peer over
/// this device still looks ready.
#[test]
fn a_region_that_a_failed_device_lacks_uses_the_other_device() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    let [a, b] = [(); 2].map(|()| engine(&fakes, quick().manual(true)));
    let hook = Arc::new(Hook::default());
    let watch = {
        let hook = Arc::clone(&hook);
        move |_: &str| {
            let hook = hook.lock().expect("no panic").take();
            if let Some(hook) = hook {
                hook();
            }
        }
    };
    let [first, _first_of_b] = connect_watched([&a, &b], watch);
    let (second, _second_of_b) = connect(&a, &b);
    let start = Instant::now();
    let mut time = 0;
    let mut advance = || {
        time += 1;
        let now = start + Duration::from_millis(time);
        a.poll(now);
        b.poll(now);
    };
    let is_ready = |peer: &Peer| {
        let paths = peer.paths();
        paths.len() == 2 && paths.iter().all(|path| path.is_ready)
    };
    while !is_ready(&first) || !is_ready(&second) {
        advance();
    }
    let target = b.alloc(64).expect("region");
    let transfer = Arc::new(Mutex::new(None));
    let write = {
        let (a, second, transfer) = (a.clone(), second.clone(), Arc::clone(&transfer));
        let remote = target.remote();
        move || {
            let source = filled(&a, 64, 1);
            let all = [Span::new(0, 0, 64)];
            let options = TransferOptions::new().device(0);
            let write = second.write(&source, &remote, &all, options);
            *transfer.lock().expect("no panic") = Some(write.expect("write"));
        }
    };
    *hook.lock().expect("no panic") = Some(Box::new(write));
    fakes[0].raise(DEVICE_FATAL);
    advance();
    let transfer = transfer.lock().expect("no panic").take();
    let transfer = transfer.expect("the first path has told its peer that it is closed");
    while !transfer.has_ended() {
        advance();
    }
    transfer.wait(Duration::ZERO).expect("written");
    assert_eq!(bytes(&target), pattern(64, 1));

    // The same at the peer: the region was created without a key for its first device.
    while !is_ready(&second) {
        advance();
    }
    let source = filled(&a, 64, 2);
    let target = b.alloc(64).expect("region");
    let mut remote = target.remote();
    remote.keys[0] = RemoteMemory {
        addr: 0,
        len: 0,
        rkey: 0,
    };
    let options = TransferOptions::new().device(0);
    let transfer = second.write(&source, &remote, &[Span::new(0, 0, 64)], options);
    let transfer = transfer.expect("write");
    while !transfer.has_ended() {
        advance();
    }
    transfer.wait(Duration::ZERO).expect("written");
    assert_eq!(bytes(&target), pattern(64, 2));
}

/// A packet of the old queue pair would overwrite what the program writes after the repetition.
#[test]
fn nothing_is_repeated_while_a_queue_pair_exists() {
    let fakes = Arc::new([Fake::new(Profile::RXE)]);
    let [a, b] = [(); 2].map(|()| engine(&fakes[..], quick().manual(true)));
    let watch = {
        let fakes = Arc::clone(&fakes);
        move |message: &str| {
            let limit = match message {
                _ if message.starts_with("{\"Down\"") => 1,
                _ if message.starts_with("{\"Settled\"") => 0,
                _ => 2,
            };
            assert!(fakes[0].live().qps <= limit, "{message}");
        }
    };
    let [peer, _a] = connect_watched([&a, &b], watch);
    let (source, target) = (filled(&a, 64, 1), b.alloc(64).expect("region"));
    let mut now = Instant::now();
    let mut advance = || {
        now += Duration::from_millis(1);
        a.poll(now);
        b.poll(now);
    };
    for value in 0..3 {
        while peer.paths().first().is_none_or(|path| !path.is_ready) {
            advance();
        }
        fakes[0].stall();
        let all = [Span::new(0, 0, 64)];
        let transfer = peer.write(&source, &target.remote(), &all, imm(value));
        let transfer = transfer.expect("write");
        fakes[0].raise(PORT_ERR);
        advance();
        fakes[0].resume();
        while !transfer.has_ended() {
            advance();
        }
        transfer.wait(Duration::ZERO).expect("written");
    }
    assert_eq!(failures(&peer), 3);
}

#[test]
fn a_transfer_to_a_released_region_is_not_repeated() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    let (a, b) = (engine(&fakes, quick()), engine(&fakes, quick()));
    let (peer, _a) = connect(&a, &b);
    let (source, target) = (filled(&a, 64, 1), b.alloc(64).expect("region"));
    wait_ready(&peer);
    fakes[0].stall();
    let all = [Span::new(0, 0, 64)];
    let write = peer.write(&source, &target.remote(), &all, imm(1).device(0));
    let write = write.expect("write");
    target.release().wait(Duration::ZERO).expect("at once");
    fakes[0].raise(PORT_ERR);
    let error = write.wait(SOON).expect_err("the target is gone");
    assert!(error.to_string().contains("released the region"), "{error}");
    assert_eq!(peer.paths()[1].failures, 0, "not tried");
    fakes[0].resume();
}

/// The program of the receiver uses the memory for something else.
#[test]
fn what_has_arrived_is_not_repeated() {
    // Also if this side cannot know it after the failure.
    for stops in [true, false] {
        let fakes = [Fake::new(Profile::RXE)];
        let [a, b] = [(); 2].map(|()| engine(&fakes, quick().manual(true)));
        let (peer, _a) = connect(&a, &b);
        let (source, target) = (filled(&a, 64, 1), b.alloc(64).expect("region"));
        let mut now = Instant::now();
        while peer.paths().first().is_none_or(|path| !path.is_ready) {
            now += Duration::from_millis(1);
            a.poll(now);
            b.poll(now);
        }
        let all = [Span::new(0, 0, 64)];
        let write = peer.write(&source, &target.remote(), &all, imm(1));
        let write = write.expect("write");
        fakes[0].fail_next(Verb::ReqNotifyCq, 5);
        if !stops {
            fakes[0].fail_next(Verb::ModifyQp, 5);
        }
        a.poll(now);
        assert_eq!(failures(&peer), 1);
        assert_eq!(write.has_ended(), stops);
        b.poll(now);
        b.imm_counter(1).wait(1, Duration::ZERO).expect("arrived");
        target.write(0, &[7; 64]).expect("in range");
        while !write.has_ended() {
            now += Duration::from_millis(1);
            a.poll(now);
            b.poll(now);
        }
        write.wait(Duration::ZERO).expect("written");
        assert_eq!(bytes(&target), [7; 64]);
    }
}
