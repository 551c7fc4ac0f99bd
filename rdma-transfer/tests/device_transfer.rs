//! Transfers between engines of one process, on devices.

mod common;

use std::time::{Duration, Instant};

use common::{SOON, bytes, connect, filled, pattern};
use rdma_transfer::{Engine, EngineOptions, ErrorKind, PeerGroup, Span};
use test_support::lab::{device_names, is_iwarp, report_device};
use test_support::leak_check::{LeakCheck, objects_of};

/// Returns the devices that the engine supports. Reports the others as unsupported, after checking
/// the error.
fn supported() -> Vec<String> {
    let mut names = device_names();
    names.retain(|name| {
        let opened = Engine::open(&[name], EngineOptions::new());
        match opened {
            Ok(_) => report_device(name),
            Err(ref error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
                println!("unsupported: {name} `ibv_post_send`: WRITE with immediate, RC");
            }
        }
        opened.is_ok()
    });
    names
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn other_devices_are_refused_with_a_clear_error() {
    let _leak_check = LeakCheck::new();
    for name in device_names() {
        report_device(&name);
        let Err(error) = Engine::open(&[&name], EngineOptions::new()) else {
            assert!(!is_iwarp(&name), "{name} has no immediates");
            continue;
        };
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let (text, reason) = (error.to_string(), "has no RDMA writes with immediate data");
        assert!(text.contains(&name) && error.help().is_some(), "{text}");
        assert!(!is_iwarp(&name) || text.contains(reason), "{text}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_striped_transfer_arrives_whole_before_its_immediate() {
    const LEN: usize = 1 << 20;
    let _leak_check = LeakCheck::new();
    for name in supported() {
        // The same device twice has two protection domains and two threads, as two devices have.
        for (devices, queue_pairs) in [(1, 1), (1, 4), (2, 2)] {
            let names = vec![name.as_str(); devices];
            let options = EngineOptions::new()
                .queue_pairs(queue_pairs)
                .stripe(8192)
                .max_send_wr(16);
            let [a, b] = [(); 2].map(|()| Engine::open(&names, options).expect("engine"));
            let (b_of_a, a_of_b) = connect(&a, &b);
            let source = filled(&a, LEN, 1);
            let target = b.alloc(LEN).expect("region");
            let back = a.alloc(LEN).expect("region");
            // The halves are exchanged on the way.
            let spans = [
                Span::new(0, LEN as u64 / 2, LEN / 2),
                Span::new(LEN / 2, 0, LEN / 2),
            ];
            for round in 0..3 {
                let transfer = b_of_a
                    .write(&source, &target.remote(), &spans, Some(round))
                    .expect("write");
                b.imm_counter(round).wait(1, SOON).expect("arrived");
                let all = pattern(LEN, 1);
                let (first, second) = all.split_at(LEN / 2);
                assert_eq!(bytes(&target), [second, first].concat(), "{name}");
                transfer.wait(SOON).expect("written");
                a_of_b
                    .write(&target, &back.remote(), &spans, Some(round))
                    .expect("write")
                    .wait(SOON)
                    .expect("written");
                a.imm_counter(round).wait(1, SOON).expect("arrived");
                assert_eq!(bytes(&back), all, "{name}");
                target.write(0, &vec![0; LEN]).expect("in range");
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn transfers_of_two_senders_are_counted() {
    let _leak_check = LeakCheck::new();
    for name in supported() {
        let options = EngineOptions::new().queue_pairs(2).max_recv_wr(4);
        let engines = [(); 3].map(|()| Engine::open(&[&name], options).expect("engine"));
        let [receiver, senders @ ..] = &engines;
        let target = receiver.alloc(2 * 4096).expect("region");
        let connections = senders.each_ref().map(|sender| connect(sender, receiver));
        std::thread::scope(|scope| {
            for (index, (sender, (peer, _))) in senders.iter().zip(&connections).enumerate() {
                let target = &target;
                scope.spawn(move || {
                    let source = filled(sender, 4096, index);
                    let span = Span::new(0, index as u64 * 4096, 4096);
                    // More than the receives of the peer.
                    let write = |_| peer.write(&source, &target.remote(), &[span], Some(3));
                    let transfers: Vec<_> = (0..50).map(write).collect();
                    for transfer in transfers {
                        transfer.expect("write").wait(SOON).expect("written");
                    }
                });
            }
            receiver.imm_counter(3).wait(100, SOON).expect("arrived");
        });
        assert_eq!(receiver.imm_counter(3).count(), 0);
        let expected = [pattern(4096, 0), pattern(4096, 1)].concat();
        assert_eq!(bytes(&target), expected, "{name}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_group_of_three_receives_pages() {
    const PAGE: usize = 4096;
    let _leak_check = LeakCheck::new();
    for name in supported() {
        let options = EngineOptions::new().queue_pairs(2).stripe(1000);
        let sender = Engine::open(&[&name], options).expect("engine");
        let receivers = [(); 3].map(|()| Engine::open(&[&name], options).expect("engine"));
        let targets = receivers
            .each_ref()
            .map(|one| one.alloc(2 * PAGE).expect("region"));
        let peers = receivers.each_ref().map(|one| connect(&sender, one));
        let group = PeerGroup::new(
            peers
                .iter()
                .zip(&targets)
                .map(|((peer, _), target)| (peer.clone(), target.remote())),
        );
        let source = filled(&sender, 4 * PAGE, 9);
        let broadcast = group
            .broadcast(&source, &[Span::new(0, 0, PAGE)], Some(1))
            .expect("broadcast");
        let own = [1, 2, 3].map(|page| vec![Span::new(page * PAGE, PAGE as u64, PAGE)]);
        let scattered = group.scatter(&source, &own, Some(1)).expect("scatter");
        for transfer in [broadcast, scattered] {
            transfer.wait(SOON).expect("written");
        }
        let all = pattern(4 * PAGE, 9);
        for (index, (receiver, target)) in receivers.iter().zip(&targets).enumerate() {
            receiver.imm_counter(1).wait(2, SOON).expect("arrived");
            let own = &all[(index + 1) * PAGE..(index + 2) * PAGE];
            assert_eq!(bytes(target), [&all[..PAGE], own].concat(), "{name}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_dead_peer_fails_its_transfers_and_frees_their_memory() {
    let _leak_check = LeakCheck::new();
    for name in supported() {
        let options = EngineOptions::new()
            .queue_pairs(2)
            .stripe(65536)
            .max_send_wr(4)
            // Six times 134 ms: longer than a busy machine delays an acknowledgment.
            .timeout(15)
            .retry_cnt(5);
        let [a, dying, other] = [(); 3].map(|()| Engine::open(&[&name], options).expect("engine"));
        let (to_dying, at_dying) = connect(&a, &dying);
        let (to_other, _a) = connect(&a, &other);
        let len = 2 << 20;
        let source = filled(&a, len, 2);
        let target = dying.alloc(len).expect("region");
        let kept = other.alloc(len).expect("region");
        let members = [(to_dying.clone(), &target), (to_other.clone(), &kept)];
        let group = PeerGroup::new(members.map(|(peer, region)| (peer, region.remote())));
        let regions = objects_of(&name)["mr"];
        let broadcast = |_| group.broadcast(&source, &[Span::new(0, 0, len)], Some(1));
        let _transfers: Vec<_> = (0..7).map(broadcast).collect();
        // The queue pairs of the peer disappear, as if its process had died.
        dying.imm_counter(1).wait(1, SOON).expect("the first");
        drop(at_dying);
        // The others may have ended before.
        let last = broadcast(7).expect("broadcast");
        drop(source);
        let error = last.wait(SOON).expect_err("a peer has died");
        assert!(last.has_ended(), "{error}");
        assert_eq!(error.kind(), ErrorKind::Completion, "{name}: {error}");
        assert!(!to_dying.is_connected() && to_other.is_connected());
        other.imm_counter(1).wait(8, SOON).expect("arrived");
        assert_eq!(bytes(&kept), pattern(len, 2), "the other peer has all");
        assert_eq!(objects_of(&name)["mr"], regions, "held by the other peer");
        to_other.disconnect();
        assert_eq!(objects_of(&name)["mr"], regions - 1, "freed");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn memory_is_kept_after_a_timeout_until_the_disconnection() {
    let _leak_check = LeakCheck::new();
    for name in supported() {
        // The peer does not answer for seconds, because it is not connected.
        let options = EngineOptions::new().timeout(18);
        let [a, b] = [(); 2].map(|()| Engine::open(&[&name], options).expect("engine"));
        let silent = b.new_peer().expect("queue pairs");
        let peer = a.new_peer().expect("queue pairs");
        let peer = peer.connect(silent.address()).expect("connects");
        let source = filled(&a, 1 << 20, 4);
        let target = b.alloc(1 << 20).expect("region");
        let transfer = peer
            .write(&source, &target.remote(), &[Span::new(0, 0, 1 << 20)], None)
            .expect("write");
        drop(source);
        let regions = objects_of(&name)["mr"];
        let start = Instant::now();
        let timeout = Duration::from_millis(100);
        let error = transfer.wait(timeout).expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{name}: {error}");
        assert!(start.elapsed() >= timeout);
        assert_eq!(objects_of(&name)["mr"], regions, "the memory is held");
        peer.disconnect();
        assert_eq!(objects_of(&name)["mr"], regions - 1, "the memory is freed");
        let error = transfer.wait(Duration::ZERO).expect_err("disconnected");
        assert_eq!(error.kind(), ErrorKind::Disconnected, "{name}: {error}");
        assert_eq!(bytes(&target), vec![0; 1 << 20]);
    }
}
