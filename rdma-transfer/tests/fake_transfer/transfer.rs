//! Transfers between engines on the fake provider.

use std::sync::Arc;
use std::time::Duration;

use fake_provider::{Fake, Profile, Transport};
use rdma_transfer::{
    Engine, EngineOptions, ErrorKind, PeerGroup, RemoteRegion, Span, TransferOptions,
};
use test_support::{named_value, option_defaults::assert_documented};

use crate::common::{SOON, bytes, connect, filled, imm, pattern, wait_ready, wait_until};

/// A time limit that expires in tests.
const BRIEF: Duration = Duration::from_millis(20);

fn engine(fakes: &[Fake], options: EngineOptions) -> Engine {
    let names: Vec<&str> = fakes.iter().map(Fake::name).collect();
    Engine::open(&names, options).expect("engine")
}

#[test]
fn a_striped_transfer_is_counted_once() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    for busy_poll in [false, true] {
        // Each queue pair has fewer slots than requests.
        let options = EngineOptions::new()
            .queue_pairs(2)
            .stripe(100)
            .max_send_wr(3)
            .max_recv_wr(2)
            .busy_poll(busy_poll);
        let (a, b) = (engine(&fakes, options), engine(&fakes, options));
        let (peer, _a) = connect(&a, &b);
        let source = filled(&a, 8192, 1);
        let target = b.alloc(8192).expect("region");
        let counter = b.imm_counter(7);
        for round in 0..10 {
            let spans = [Span::new(4096, 0, 4096), Span::new(0, 4096, 4096)];
            let transfer = peer
                .write(&source, &target.remote(), &spans, imm(7))
                .expect("write");
            transfer.wait(SOON).expect("written");
            assert_eq!((transfer.bytes(), transfer.bytes_done()), (8192, 8192));
            counter.wait(1, SOON).expect("arrived");
            let expected = [&pattern(8192, 1)[4096..], &pattern(8192, 1)[..4096]].concat();
            assert_eq!(bytes(&target), expected, "round {round}");
            assert_eq!(counter.count(), 0, "round {round}");
            target.write(0, &[0; 8192]).expect("in range");
        }
    }
    fakes.iter().for_each(Fake::assert_clean);
}

#[test]
fn a_striped_read_returns_all_bytes() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    let options = EngineOptions::new().stripe(100).max_send_wr(3);
    let (a, b) = (engine(&fakes, options), engine(&fakes, options));
    let (peer, _a) = connect(&a, &b);
    let remote = filled(&b, 8192, 3);
    let local = a.alloc(8192).expect("region");
    let spans = [Span::new(0, 4096, 4096), Span::new(4096, 0, 4096)];
    let options = TransferOptions::new();
    let transfer = peer
        .read(&local, &remote.remote(), &spans, options)
        .expect("read");
    transfer.wait(SOON).expect("read");
    assert_eq!(transfer.bytes_done(), 8192);
    let all = pattern(8192, 3);
    assert_eq!(bytes(&local), [&all[4096..], &all[..4096]].concat());
    let error = peer
        .read(&local, &remote.remote(), &spans, imm(1))
        .expect_err("an immediate");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn values_are_sent_and_read_and_dropped_when_released() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    let options = EngineOptions::new().stripe(64);
    let (a, b) = (engine(&fakes, options), engine(&fakes, options));
    let (peer, a_of_b) = connect(&a, &b);
    // A path registers memory of its own.
    wait_ready(&peer);
    wait_ready(&a_of_b);
    let owner: Arc<[u8]> = pattern(1000, 5).into();
    let value = a.register(Arc::clone(&owner)).expect("registered");
    assert!(!value.is_writable());
    let target = b.alloc(1000).expect("region");
    let all = [Span::new(0, 0, 1000)];
    peer.write(&value, &target.remote(), &all, imm(1))
        .expect("write")
        .wait(SOON)
        .expect("written");
    assert_eq!(bytes(&target), pattern(1000, 5));
    // The peer reads it as well.
    let copy = b.alloc(1000).expect("region");
    a_of_b
        .read(&copy, &value.remote(), &all, TransferOptions::new())
        .expect("read")
        .wait(SOON)
        .expect("read");
    assert_eq!(bytes(&copy), pattern(1000, 5));
    let error = peer
        .read(&value, &target.remote(), &all, TransferOptions::new())
        .expect_err("read-only");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        value.write(0, &[1]).expect_err("read-only").kind(),
        ErrorKind::Unsupported
    );
    let mut part = [0; 10];
    value.read(990, &mut part).expect("in range");
    assert_eq!(part, pattern(1000, 5)[990..]);
    assert_eq!(
        value.read(991, &mut part).expect_err("1001").kind(),
        ErrorKind::InvalidInput
    );
    let regions = fakes.each_ref().map(|fake| fake.live().mrs);
    value.release().wait(SOON).expect("released");
    assert_eq!(Arc::strong_count(&owner), 1, "the engine has dropped it");
    for (fake, regions) in fakes.iter().zip(regions) {
        assert_eq!(fake.live().mrs, regions - 1, "deregistered on both devices");
    }
    assert!(peer.is_connected());
}

#[test]
fn a_cache_of_registered_memory_does_not_grow() {
    let fakes = [Fake::new(Profile::RXE)];
    let [fake] = &fakes;
    let options = EngineOptions::new();
    let (a, b) = (engine(&fakes, options), engine(&fakes, options));
    let (peer, _a) = connect(&a, &b);
    let target = b.alloc(4096).expect("region");
    wait_ready(&peer);
    let regions = fake.live().mrs;
    for round in 0..20 {
        let source = filled(&a, 4096, round);
        let clone = source.clone();
        peer.write(&source, &target.remote(), &[Span::new(0, 0, 4096)], imm(1))
            .expect("write")
            .wait(SOON)
            .expect("written");
        let release = source.release();
        let error = release.wait(Duration::ZERO).expect_err("there is a clone");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(clone);
        release.wait(SOON).expect("released");
        assert!(release.is_done());
        assert_eq!(fake.live().mrs, regions, "round {round}");
    }
}

#[test]
fn a_group_receives_the_same_or_its_own_ranges() {
    let fakes = [Fake::new(Profile::RXE)];
    let options = EngineOptions::new().stripe(16);
    let sender = engine(&fakes, options);
    let receivers = [(); 3].map(|()| engine(&fakes, options));
    let targets = receivers
        .each_ref()
        .map(|one| one.alloc(64).expect("region"));
    let peers = receivers.each_ref().map(|one| connect(&sender, one));
    let members = peers.iter().zip(&targets);
    let group = PeerGroup::new(members.map(|((peer, _), target)| (peer.clone(), target.remote())));
    let source = filled(&sender, 256, 3);
    group
        .broadcast(&source, &[Span::new(0, 0, 64)], imm(1))
        .expect("broadcast")
        .wait(SOON)
        .expect("written");
    for (receiver, target) in receivers.iter().zip(&targets) {
        receiver.imm_counter(1).wait(1, SOON).expect("arrived");
        assert_eq!(bytes(target), pattern(256, 3)[..64]);
    }
    let spans = [0, 1, 2].map(|index| vec![Span::new(64 * (index + 1), 0, 64)]);
    group
        .scatter(&source, &spans, imm(2))
        .expect("scatter")
        .wait(SOON)
        .expect("written");
    for (index, (receiver, target)) in receivers.iter().zip(&targets).enumerate() {
        receiver.imm_counter(2).wait(1, SOON).expect("arrived");
        let start = 64 * (index + 1);
        assert_eq!(bytes(target), pattern(256, 3)[start..start + 64]);
    }
    let error = group
        .scatter(&source, &spans[..2], imm(1))
        .expect_err("a list is missing");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    // Nothing is written to the other members.
    let mut spans = spans;
    spans[2][0].remote = 1;
    let error = group.scatter(&source, &spans, imm(3)).expect_err("bounds");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let last = [Span::new(0, 0, 64)];
    let transfer = group.broadcast(&source, &last, imm(4));
    transfer.expect("broadcast").wait(SOON).expect("written");
    for receiver in &receivers {
        receiver.imm_counter(4).wait(1, SOON).expect("arrived");
        assert_eq!(receiver.imm_counter(3).count(), 0);
    }
}

#[test]
fn memory_of_a_timed_out_transfer_is_kept() {
    let fakes = [Fake::new(Profile::RXE)];
    let [fake] = &fakes;
    let options = EngineOptions::new();
    let (a, b) = (engine(&fakes, options), engine(&fakes, options));
    let (peer, _a) = connect(&a, &b);
    let target = b.alloc(4096).expect("region");
    let source = filled(&a, 4096, 5);
    let all = [Span::new(0, 0, 4096)];
    wait_ready(&peer);
    let regions = fake.live().mrs;
    fake.stall();
    let transfer = peer
        .write(&source, &target.remote(), &all, imm(1))
        .expect("write");
    let error = transfer.wait(BRIEF).expect_err("the device is stalled");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(!transfer.has_ended());
    let release = source.release();
    release.wait(BRIEF).expect_err("the transfer uses it");
    assert_eq!(fake.live().mrs, regions, "the transfer holds the memory");
    fake.resume();
    transfer.wait(SOON).expect("written after the timeout");
    release.wait(SOON).expect("released");
    assert_eq!(bytes(&target), pattern(4096, 5));

    let source = filled(&a, 4096, 6);
    fake.stall();
    let transfer = peer
        .write(&source, &target.remote(), &all, imm(1))
        .expect("write");
    let release = source.release();
    transfer.wait(BRIEF).expect_err("the device is stalled");
    let pairs = fake.live().qps;
    peer.disconnect();
    assert!(fake.live().qps < pairs);
    assert!(release.is_done(), "freed by the disconnection");
    let error = transfer.wait(Duration::ZERO).expect_err("disconnected");
    assert_eq!(error.kind(), ErrorKind::Disconnected);
    assert!(!peer.is_connected());
    let source = a.alloc(4096).expect("region");
    let error = peer
        .write(&source, &target.remote(), &all, imm(1))
        .expect_err("disconnected");
    assert_eq!(error.kind(), ErrorKind::Disconnected);
    fake.resume();
    assert_eq!(bytes(&target), pattern(4096, 5), "nothing more was written");
}

#[test]
fn both_sides_notice_a_disconnection() {
    let fakes = [Fake::new(Profile::RXE)];
    let options = EngineOptions::new();
    let (a, b) = (engine(&fakes, options), engine(&fakes, options));
    let (b_of_a, a_of_b) = connect(&a, &b);
    wait_ready(&b_of_a);
    drop(b_of_a);
    wait_until("the other side notices", || !a_of_b.is_connected());
    assert_eq!(fakes[0].live().qps, 0);
    let region = b.alloc(8).expect("region");
    let error = a_of_b
        .write(&region, &region.remote(), &[], imm(1))
        .expect_err("disconnected");
    assert!(
        error.to_string().contains("the peer has disconnected"),
        "{error}"
    );
}

/// A request that fails on every path is not repeated, so the paths are not connected again and
/// again (Mooncake#3299), and nothing uses the failed queue pair (SPDK#3830).
#[test]
fn a_request_with_a_wrong_key_fails_only_its_transfer() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    let options = EngineOptions::new().stripe(64);
    let (a, b) = (engine(&fakes, options), engine(&fakes, options));
    let (peer, _a) = connect(&a, &b);
    let source = filled(&a, 4096, 1);
    let target = b.alloc(4096).expect("region");
    wait_ready(&peer);
    let mut remote = target.remote();
    for key in &mut remote.keys {
        key.rkey ^= 0xff00;
    }
    let all = [Span::new(0, 0, 4096)];
    let failed = peer.write(&source, &remote, &all, imm(1)).expect("write");
    let good = peer
        .write(&source, &target.remote(), &all, imm(2))
        .expect("write");
    let error = failed.wait(SOON).expect_err("the key is wrong");
    assert_eq!(error.kind(), ErrorKind::Completion, "{error}");
    good.wait(SOON).expect("written");
    b.imm_counter(2).wait(1, SOON).expect("arrived");
    assert_eq!(bytes(&target), pattern(4096, 1));
    let error = b.imm_counter(1).wait(1, BRIEF).expect_err("incomplete");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    wait_ready(&peer);
    let failures =
        |peer: &rdma_transfer::Peer| -> u64 { peer.paths().iter().map(|path| path.failures).sum() };
    assert!((1..=2).contains(&failures(&peer)), "{peer:?}");
}

#[test]
fn times_that_no_clock_reaches_are_no_limits() {
    let fakes = [Fake::new(Profile::RXE)];
    let options = EngineOptions::new()
        .stall(Duration::MAX)
        .max_backoff(Duration::MAX);
    let (a, b) = (engine(&fakes, options), engine(&fakes, options));
    let (peer, _a) = connect(&a, &b);
    let source = filled(&a, 64, 1);
    let target = b.alloc(64).expect("region");
    wait_ready(&peer);
    let mut wrong = target.remote();
    for key in &mut wrong.keys {
        key.rkey ^= 0xff00;
    }
    let all = [Span::new(0, 0, 64)];
    let options = TransferOptions::new().deadline(Duration::MAX);
    // After the wrong key the path waits, and is connected again.
    for (remote, is_written) in [(wrong, false), (target.remote(), true)] {
        let transfer = peer.write(&source, &remote, &all, options).expect("write");
        assert_eq!(transfer.wait(SOON).is_ok(), is_written);
    }
    assert_eq!(bytes(&target), pattern(64, 1));
}

/// A READ that timed out, whose memory the program gives away: a late response must not write to it
/// (pegaflow#403).
#[test]
fn memory_of_a_timed_out_read_is_not_reused_early() {
    /// Also longer than a busy machine stops a thread.
    const LIMIT: Duration = Duration::from_secs(1);
    let fakes = [Fake::new(Profile::RXE)];
    let [fake] = &fakes;
    let options = EngineOptions::new()
        .stall(LIMIT)
        .min_backoff(Duration::from_millis(1));
    let (a, b) = (engine(&fakes, options), engine(&fakes, options));
    let (peer, _a) = connect(&a, &b);
    let remote = filled(&b, 4096, 3);
    let staging = a.alloc(4096).expect("region");
    wait_ready(&peer);
    let regions = fake.live().mrs;
    fake.stall();
    let all = [Span::new(0, 0, 4096)];
    let deadline = TransferOptions::new().deadline(LIMIT);
    let transfer = peer
        .read(&staging, &remote.remote(), &all, deadline)
        .expect("read");
    let release = staging.release();
    transfer
        .wait(Duration::from_millis(10))
        .expect_err("the device is stalled");
    assert!(
        !release.is_done() && fake.live().mrs == regions,
        "in flight"
    );
    let error = transfer.wait(SOON).expect_err("the deadline has passed");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(transfer.has_ended(), "its queue pair was destroyed");
    release.wait(SOON).expect("released");
    // The fake reports an access to memory that is not registered.
    fake.resume();
    wait_ready(&peer);
}

/// Memory that the receiver frees while the sender writes.
#[test]
fn a_released_target_fails_the_transfer_and_stays_unchanged() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    let options = EngineOptions::new().stripe(64);
    let (a, b) = (engine(&fakes, options), engine(&fakes, options));
    let (peer, _a) = connect(&a, &b);
    let source = filled(&a, 4096, 1);
    let target = b.alloc(4096).expect("region");
    let remote = target.remote();
    wait_ready(&peer);
    fakes.iter().for_each(Fake::stall);
    let all = [Span::new(0, 0, 4096)];
    let transfer = peer.write(&source, &remote, &all, imm(1)).expect("write");
    target.release().wait(Duration::ZERO).expect("at once");
    fakes.iter().for_each(Fake::resume);
    let error = transfer.wait(SOON).expect_err("the target is gone");
    assert_eq!(error.kind(), ErrorKind::Completion, "{error}");
    // The fake reports any access to freed memory when it is dropped.
    let target = b.alloc(4096).expect("region");
    peer.write(&source, &target.remote(), &all, imm(2))
        .expect("write")
        .wait(SOON)
        .expect("written");
    assert_eq!(bytes(&target), pattern(4096, 1));
}

#[test]
fn invalid_transfers_are_rejected_and_write_nothing() {
    let fakes = [Fake::new(Profile::RXE)];
    let options = EngineOptions::new();
    let (a, b) = (engine(&fakes, options), engine(&fakes, options));
    let (peer, _a) = connect(&a, &b);
    let (source, target) = (filled(&a, 64, 1), b.alloc(32).expect("region"));
    let remote = target.remote();
    let valid = Span::new(0, 0, 8);
    let none = TransferOptions::new();
    for span in [Span::new(60, 0, 8), Span::new(0, 28, 8)] {
        let error = peer.write(&source, &remote, &[valid, span], none);
        let error = error.expect_err("out of bounds");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    let no_keys = RemoteRegion {
        id: 0,
        keys: Vec::new(),
    };
    let error = peer
        .write(&source, &no_keys, &[valid], none)
        .expect_err("no key");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let error = peer
        .write(&source, &remote, &[valid], none.device(1))
        .expect_err("one device");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let error = peer
        .write(&target, &remote, &[valid], none)
        .expect_err("a region of the other engine");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert_eq!(bytes(&target), [0; 32]);
    assert!(peer.is_connected());
    let empty = peer.write(&source, &remote, &[], none).expect("nothing");
    empty.wait(Duration::ZERO).expect("ended at once");
    peer.write(&source, &remote, &[], imm(9))
        .expect("an immediate alone")
        .wait(SOON)
        .expect("delivered");
    b.imm_counter(9).wait(1, SOON).expect("arrived");
}

#[test]
fn engines_with_other_devices_and_queue_pairs_are_connected() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    // Path n needs device n % 2 on one side, and device n % 1 on the other: the same network.
    let a = engine(&fakes[..1], EngineOptions::new());
    let b = engine(&fakes[..1], EngineOptions::new().queue_pairs(3));
    let (b_of_a, a_of_b) = connect(&a, &b);
    wait_ready(&b_of_a);
    assert_eq!(b_of_a.paths().len(), 3);
    assert_eq!(a_of_b.paths().len(), 3);
    assert_eq!(b_of_a.paths()[0].device, fakes[0].name());
}

#[test]
fn a_transfer_uses_the_device_that_it_names() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    let options = EngineOptions::new().stripe(64);
    let (a, b) = (engine(&fakes, options), engine(&fakes, options));
    let (peer, _a) = connect(&a, &b);
    let source = filled(&a, 4096, 1);
    let target = b.alloc(4096).expect("region");
    wait_ready(&peer);
    fakes[0].stall();
    let all = [Span::new(0, 0, 4096)];
    peer.write(&source, &target.remote(), &all, imm(1).device(1))
        .expect("write")
        .wait(SOON)
        .expect("the stalled device is not used");
    assert_eq!(peer.paths()[0].in_flight, 0);
    fakes[0].resume();
}

#[test]
fn a_deadline_ends_a_transfer_without_a_path() {
    let fakes = [Fake::new(Profile::RXE)];
    let options = EngineOptions::new();
    let (a, b) = (engine(&fakes, options), engine(&fakes, options));
    let source = filled(&a, 4096, 1);
    let target = b.alloc(4096).expect("region");
    // The other side never answers.
    let (stream, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let control = rdma_transfer::StreamControl::new(stream).expect("non-blocking");
    let peer = a.connect(control).expect("connects");
    let all = [Span::new(0, 0, 4096)];
    let options = imm(1).deadline(BRIEF);
    let write = |options| peer.write(&source, &target.remote(), &all, options);
    let transfer = write(options).expect("write");
    let error = transfer.wait(SOON).expect_err("no path");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(transfer.has_ended() && transfer.bytes_done() == 0);
    assert!(error.to_string().contains("deadline"), "{error}");
    let transfer = write(imm(1)).expect("write");
    transfer.cancel();
    let error = transfer.wait(SOON).expect_err("canceled");
    assert_eq!(error.kind(), ErrorKind::WrongState);
}

#[test]
fn devices_without_reliable_connections_are_rejected() {
    let efa = Profile {
        transport: Transport::Unspecified,
        ..Profile::RXE
    };
    let fake = Fake::new(efa);
    let error = Engine::open(&[fake.name()], EngineOptions::new()).expect_err("unsupported");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains(fake.name()), "{error}");
    let reason = "has no reliable connections";
    assert!(error.to_string().contains(reason), "{error}");
}

#[test]
fn options_are_checked_and_their_defaults_documented() {
    let source = include_str!("../../src/options.rs");
    let named = [
        named_value!(Duration::from_micros(500)),
        named_value!(Duration::from_secs(1)),
        named_value!(Duration::from_secs(5)),
        named_value!(Duration::from_millis(10)),
    ];
    let defaults = EngineOptions::default();
    assert_documented(source, "EngineOptions", &defaults, &[], &named);
    let defaults = TransferOptions::default();
    assert_documented(source, "TransferOptions", &defaults, &[], &[]);
    let fake = Fake::new(Profile::RXE);
    for options in [
        EngineOptions::new().queue_pairs(0),
        EngineOptions::new().queue_pairs(129),
        EngineOptions::new().max_paths(4097),
        EngineOptions::new().stripe(0),
        EngineOptions::new().max_send_wr(1),
        EngineOptions::new().max_send_wr(4097),
        EngineOptions::new().max_recv_wr(0),
        EngineOptions::new().max_recv_wr(4097),
        EngineOptions::new().timeout(0),
        EngineOptions::new().timeout(32),
        EngineOptions::new().retry_cnt(7),
        EngineOptions::new().stall(Duration::ZERO),
        EngineOptions::new().min_backoff(Duration::ZERO),
    ] {
        let error = Engine::open(&[fake.name()], options).expect_err("out of its limits");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    assert!(
        Engine::open(&[], EngineOptions::new()).is_err(),
        "no device"
    );
}
