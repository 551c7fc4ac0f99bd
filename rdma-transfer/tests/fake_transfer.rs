//! Transfers between engines on the fake provider.

mod common;

use std::time::Duration;

use common::{SOON, bytes, connect, filled, pattern};
use fake_provider::{Fake, Profile, Transport};
use rdma_transfer::{Engine, EngineOptions, ErrorKind, PeerGroup, RemoteRegion, Span};
use test_support::option_defaults::assert_documented;

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
            peer.write(&source, &target.remote(), &spans, Some(7))
                .expect("write")
                .wait(SOON)
                .expect("written");
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
        .broadcast(&source, &[Span::new(0, 0, 64)], Some(1))
        .expect("broadcast")
        .wait(SOON)
        .expect("written");
    for (receiver, target) in receivers.iter().zip(&targets) {
        receiver.imm_counter(1).wait(1, SOON).expect("arrived");
        assert_eq!(bytes(target), pattern(256, 3)[..64]);
    }
    let spans = [0, 1, 2].map(|index| vec![Span::new(64 * (index + 1), 0, 64)]);
    group
        .scatter(&source, &spans, Some(2))
        .expect("scatter")
        .wait(SOON)
        .expect("written");
    for (index, (receiver, target)) in receivers.iter().zip(&targets).enumerate() {
        receiver.imm_counter(2).wait(1, SOON).expect("arrived");
        let start = 64 * (index + 1);
        assert_eq!(bytes(target), pattern(256, 3)[start..start + 64]);
    }
    let error = group
        .scatter(&source, &spans[..2], None)
        .expect_err("a list is missing");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
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
    fake.stall();
    let transfer = peer
        .write(&source, &target.remote(), &all, Some(1))
        .expect("write");
    let error = transfer.wait(BRIEF).expect_err("the device is stalled");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(!transfer.has_ended());
    let regions = fake.live().mrs;
    drop(source);
    assert_eq!(fake.live().mrs, regions, "the queue pair holds the memory");
    fake.resume();
    transfer.wait(SOON).expect("written after the timeout");
    assert_eq!(bytes(&target), pattern(4096, 5));

    let source = filled(&a, 4096, 6);
    fake.stall();
    let transfer = peer
        .write(&source, &target.remote(), &all, Some(1))
        .expect("write");
    drop(source);
    transfer.wait(BRIEF).expect_err("the device is stalled");
    assert_eq!(fake.live().mrs, regions + 1);
    let pairs = fake.live().qps;
    peer.disconnect();
    assert_eq!(fake.live().qps, pairs - 1);
    assert_eq!(fake.live().mrs, regions - 1, "both sources are freed");
    let error = transfer.wait(Duration::ZERO).expect_err("disconnected");
    assert_eq!(error.kind(), ErrorKind::Disconnected);
    assert!(!peer.is_connected());
    let source = a.alloc(4096).expect("region");
    let error = peer
        .write(&source, &target.remote(), &all, None)
        .expect_err("disconnected");
    assert_eq!(error.kind(), ErrorKind::Disconnected);
    fake.resume();
    assert_eq!(bytes(&target), pattern(4096, 5), "nothing more was written");
}

#[test]
fn a_failed_request_disconnects_the_peer() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    let options = EngineOptions::new().stripe(64);
    let (a, b) = (engine(&fakes, options), engine(&fakes, options));
    let (peer, _a) = connect(&a, &b);
    let source = filled(&a, 4096, 1);
    let target = b.alloc(4096).expect("region");
    let mut remote = target.remote();
    remote.keys[1].rkey ^= 0xff00;
    let pairs = fakes.each_ref().map(|fake| fake.live().qps);
    let transfer = peer
        .write(&source, &remote, &[Span::new(0, 0, 4096)], Some(1))
        .expect("write");
    let error = transfer.wait(SOON).expect_err("the key is wrong");
    assert_eq!(error.kind(), ErrorKind::Completion, "{error}");
    assert!(!peer.is_connected());
    for (fake, pairs) in fakes.iter().zip(pairs) {
        assert!(
            fake.live().qps < pairs,
            "destroyed before the transfer failed"
        );
    }
    let error = b.imm_counter(1).wait(1, BRIEF).expect_err("incomplete");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[test]
fn invalid_writes_are_rejected_and_write_nothing() {
    let fakes = [Fake::new(Profile::RXE)];
    let options = EngineOptions::new();
    let (a, b) = (engine(&fakes, options), engine(&fakes, options));
    let (peer, _a) = connect(&a, &b);
    let (source, target) = (filled(&a, 64, 1), b.alloc(32).expect("region"));
    let remote = target.remote();
    let valid = Span::new(0, 0, 8);
    for span in [Span::new(60, 0, 8), Span::new(0, 28, 8)] {
        let error = peer.write(&source, &remote, &[valid, span], None);
        let error = error.expect_err("out of bounds");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    let no_keys = RemoteRegion { keys: Vec::new() };
    let error = peer
        .write(&source, &no_keys, &[], Some(1))
        .expect_err("no key");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let error = peer
        .write(&target, &remote, &[valid], None)
        .expect_err("a region of the other engine");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert_eq!(bytes(&target), [0; 32]);
    assert!(peer.is_connected());
    let empty = peer.write(&source, &remote, &[], None).expect("nothing");
    empty.wait(Duration::ZERO).expect("ended at once");
    peer.write(&source, &remote, &[], Some(9))
        .expect("an immediate alone")
        .wait(SOON)
        .expect("delivered");
    b.imm_counter(9).wait(1, SOON).expect("arrived");
}

#[test]
fn engines_with_other_queue_pairs_are_rejected() {
    let fakes = [Fake::new(Profile::RXE)];
    let a = engine(&fakes, EngineOptions::new());
    let b = engine(&fakes, EngineOptions::new().queue_pairs(2));
    let (of_a, of_b) = (a.new_peer().expect("a"), b.new_peer().expect("b"));
    let error = of_a.connect(of_b.address()).expect_err("1 and 2");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.help().is_some());
}

#[test]
fn devices_without_what_the_engine_needs_are_rejected() {
    let efa = Profile {
        transport: Transport::Unspecified,
        ..Profile::RXE
    };
    for (profile, reason) in [
        (
            Profile::SIW,
            "is iWARP, which has no RDMA writes with immediate data",
        ),
        (efa, "has no reliable connections"),
    ] {
        let fake = Fake::new(profile);
        let error = Engine::open(&[fake.name()], EngineOptions::new()).expect_err("unsupported");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(fake.name()), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn options_are_checked_and_their_defaults_documented() {
    let source = include_str!("../src/options.rs");
    assert_documented(source, "EngineOptions", &EngineOptions::default(), &[], &[]);
    let fake = Fake::new(Profile::RXE);
    for options in [
        EngineOptions::new().queue_pairs(0),
        EngineOptions::new().stripe(0),
        EngineOptions::new().max_send_wr(1),
        EngineOptions::new().timeout(0),
        EngineOptions::new().retry_cnt(7),
    ] {
        let error = Engine::open(&[fake.name()], options).expect_err("out of its limits");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    assert!(
        Engine::open(&[], EngineOptions::new()).is_err(),
        "no device"
    );
}
