//! Transfers between engines of one process, on devices.

mod common;

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use common::{SOON, bytes, connect, filled, imm, pattern, wait_ready, wait_until};
use ibverbs::{AccessFlags, CqOptions, Device, GidQuery, QpOptions, Rc, RcPath, wr};
use rdma_transfer::{Engine, EngineOptions, ErrorKind, PeerGroup, Span, TransferOptions};
use rdmacm::ListenOptions;
use test_support::lab::{
    LinkDown, device_names, is_iwarp, is_model, netdev, report_device, report_no_device, use_model,
};
use test_support::leak_check::{LeakCheck, objects_of};
use test_support::{process, udmabuf};

/// Returns the names of the devices, and reports them.
fn devices() -> Vec<String> {
    let names = device_names();
    for name in &names {
        report_device(name);
    }
    names
}

/// Checks that no object is left behind, within the time in which the kernel destroys a connection.
fn leak_check() -> LeakCheck {
    // librdmacm keeps the devices open that it has used.
    for name in device_names().iter().filter(|name| is_iwarp(name)) {
        let any = (std::net::Ipv4Addr::UNSPECIFIED, 0).into();
        let listener = ListenOptions::new().device(name).bind(any);
        drop(listener.expect("listener"));
    }
    LeakCheck::new().timeout(SOON)
}

/// Returns the name twice: the same device twice has two protection domains and two threads, as two
/// devices have. Soft-iWARP registers memory that peers read in one domain only.
fn twice(name: &str) -> Vec<&str> {
    vec![name; if is_iwarp(name) { 1 } else { 2 }]
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_striped_transfer_arrives_whole_before_its_immediate() {
    const LEN: usize = 1 << 20;
    let _leak_check = leak_check();
    for name in devices() {
        let (once, twice) = (vec![name.as_str()], twice(&name));
        for (names, queue_pairs) in [(&once, 1), (&once, 4), (&twice, 2)] {
            let options = EngineOptions::new()
                .queue_pairs(queue_pairs)
                .stripe(8192)
                .max_send_wr(16);
            let [a, b] = [(); 2].map(|()| Engine::open(names, options).expect("engine"));
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
                    .write(&source, &target.remote(), &spans, imm(round))
                    .expect("write");
                b.imm_counter(round).wait(1, SOON).expect("arrived");
                let all = pattern(LEN, 1);
                let (first, second) = all.split_at(LEN / 2);
                assert_eq!(bytes(&target), [second, first].concat(), "{name}");
                transfer.wait(SOON).expect("written");
                a_of_b
                    .write(&target, &back.remote(), &spans, imm(round))
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
    let _leak_check = leak_check();
    for name in devices() {
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
                    let write = |_| peer.write(&source, &target.remote(), &[span], imm(3));
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
    let _leak_check = leak_check();
    for name in devices() {
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
            .broadcast(&source, &[Span::new(0, 0, PAGE)], imm(1))
            .expect("broadcast");
        let own = [1, 2, 3].map(|page| vec![Span::new(page * PAGE, PAGE as u64, PAGE)]);
        let scattered = group.scatter(&source, &own, imm(1)).expect("scatter");
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
fn a_read_returns_the_bytes_of_a_value() {
    const LEN: usize = 1 << 20;
    let _leak_check = leak_check();
    for name in devices() {
        let names = twice(&name);
        let options = EngineOptions::new().stripe(65536);
        let [a, b] = [(); 2].map(|()| Engine::open(&names, options).expect("engine"));
        let (_b, a_of_b) = connect(&a, &b);
        let value = a.register(pattern(LEN, 8)).expect("registered");
        let copy = b.alloc(LEN).expect("region");
        let all = [Span::new(0, 0, LEN)];
        a_of_b
            .read(&copy, &value.remote(), &all, TransferOptions::new())
            .expect("read")
            .wait(SOON)
            .expect("read");
        assert_eq!(bytes(&copy), pattern(LEN, 8), "{name}");
        let regions = objects_of(&name)["mr"];
        value.release().wait(SOON).expect("released");
        assert_eq!(
            objects_of(&name)["mr"],
            regions - names.len() as u64,
            "{name}"
        );
    }
}

/// A target that the receiver has freed.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_released_target_fails_the_transfer_only() {
    const LEN: usize = 1 << 20;
    let _leak_check = leak_check();
    for name in devices() {
        let names = twice(&name);
        let options = EngineOptions::new().stripe(4096).max_send_wr(8);
        let [a, b] = [(); 2].map(|()| Engine::open(&names, options).expect("engine"));
        let (peer, _a) = connect(&a, &b);
        wait_ready(&peer);
        let source = filled(&a, LEN, 2);
        let (target, kept) = (b.alloc(LEN).expect("region"), b.alloc(LEN).expect("region"));
        let (gone, all) = (target.remote(), [Span::new(0, 0, LEN)]);
        target
            .release()
            .wait(Duration::ZERO)
            .expect("no one holds it");
        let failed = peer.write(&source, &gone, &all, imm(1)).expect("write");
        let good = peer
            .write(&source, &kept.remote(), &all, imm(2))
            .expect("write");
        let error = failed.wait(SOON).expect_err("the target is gone");
        assert_eq!(error.kind(), ErrorKind::Completion, "{name}: {error}");
        good.wait(SOON).expect("written");
        b.imm_counter(2).wait(1, SOON).expect("arrived");
        assert_eq!(bytes(&kept), pattern(LEN, 2), "{name}");
        wait_ready(&peer);
    }
}

/// A request of iWARP completes when TCP has accepted it, and is lost if the connection then fails.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_write_behind_a_failed_one_has_arrived_when_it_ends() {
    const LEN: usize = 64;
    let _leak_check = leak_check();
    for name in devices() {
        let options = EngineOptions::new().max_backoff(Duration::from_millis(20));
        let [a, b] = [(); 2].map(|()| Engine::open(&[&name], options).expect("engine"));
        let (peer, _a) = connect(&a, &b);
        let kept = b.alloc(LEN).expect("region");
        let all = [Span::new(0, 0, LEN)];
        for seed in 0..10 {
            wait_ready(&peer);
            let source = filled(&a, LEN, seed);
            let target = b.alloc(LEN).expect("region");
            let gone = target.remote();
            target.release().wait(SOON).expect("no one holds it");
            let write = |remote: &_| {
                let transfer = peer.write(&source, remote, &all, TransferOptions::new());
                transfer.expect("write")
            };
            let (failed, good) = (write(&gone), write(&kept.remote()));
            good.wait(SOON).expect("written");
            assert_eq!(bytes(&kept), pattern(LEN, seed), "{name}");
            failed.wait(SOON).expect_err("the target is gone");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_dead_peer_ends_its_transfers_and_frees_their_memory() {
    let _leak_check = leak_check();
    for name in devices() {
        let options = EngineOptions::new().queue_pairs(2).max_send_wr(4);
        let [a, dying, other] = [(); 3].map(|()| Engine::open(&[&name], options).expect("engine"));
        let (to_dying, at_dying) = connect(&a, &dying);
        let (to_other, _a) = connect(&a, &other);
        let len = 2 << 20;
        let source = filled(&a, len, 2);
        let target = dying.alloc(len).expect("region");
        let kept = other.alloc(len).expect("region");
        let members = [(to_dying.clone(), &target), (to_other.clone(), &kept)];
        let group = PeerGroup::new(members.map(|(peer, region)| (peer, region.remote())));
        let broadcast = |_| group.broadcast(&source, &[Span::new(0, 0, len)], imm(1));
        let _transfers: Vec<_> = (0..7).map(broadcast).collect();
        dying.imm_counter(1).wait(1, SOON).expect("the first");
        drop(at_dying);
        wait_until("the sender notices", || !to_dying.is_connected());
        let error = broadcast(7).expect_err("a peer is gone");
        assert_eq!(error.kind(), ErrorKind::Disconnected, "{name}: {error}");
        other.imm_counter(1).wait(7, SOON).expect("arrived");
        assert_eq!(bytes(&kept), pattern(len, 2), "the other peer has all");
        let regions = objects_of(&name)["mr"];
        source.release().wait(SOON).expect("released");
        assert_eq!(objects_of(&name)["mr"], regions - 1, "freed");
    }
}

/// The link of the only adapter goes down and up again, as in the test of Mooncake#2960.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_transfer_outlives_a_link_that_goes_down() {
    const LEN: usize = 1 << 20;
    let _leak_check = leak_check();
    for name in devices() {
        let options = EngineOptions::new()
            .queue_pairs(2)
            .max_backoff(Duration::from_millis(200));
        let [a, b] = [(); 2].map(|()| Engine::open(&[&name], options).expect("engine"));
        let (peer, _a) = connect(&a, &b);
        wait_ready(&peer);
        let source = filled(&a, LEN, 4);
        let target = b.alloc(LEN).expect("region");
        let write = || {
            peer.write(&source, &target.remote(), &[Span::new(0, 0, LEN)], imm(1))
                .expect("write")
        };
        // The model has no network interface.
        let link = LinkDown::new(&if is_model() {
            String::new()
        } else {
            netdev(&name)
        });
        // On a busy host, the driver can notice it after a transfer.
        let down = Instant::now();
        let (transfer, error) = loop {
            let transfer = write();
            if let Err(error) = transfer.wait(Duration::from_millis(300)) {
                break (transfer, error);
            }
            b.imm_counter(1).wait(1, SOON).expect("arrived");
            assert!(down.elapsed() < SOON, "{name}: the link is down");
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{name}: {error}");
        assert!(!transfer.has_ended());
        drop(link);
        let up = Instant::now();
        transfer.wait(SOON).expect("written");
        println!(
            "{name}: transferred {:?} after the link was up",
            up.elapsed()
        );
        b.imm_counter(1).wait(1, SOON).expect("arrived");
        assert_eq!(bytes(&target), pattern(LEN, 4), "{name}");
        write().wait(SOON).expect("written");
        b.imm_counter(1).wait(1, SOON).expect("counted once each");
    }
}

/// The memory of another device, for example of a GPU. `/dev/udmabuf` makes it of host memory, so
/// that the test sees what has arrived.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_dma_buf_is_source_and_target() {
    const LEN: usize = 16 << 10;
    let _leak_check = leak_check();
    if !udmabuf::is_available() {
        return report_no_device("there is no /dev/udmabuf");
    }
    for name in devices() {
        let options = EngineOptions::new().queue_pairs(2).stripe(4096);
        let [a, b] = [(); 2].map(|()| Engine::open(&[&name], options).expect("engine"));
        let (peer, a_of_b) = connect(&a, &b);
        let source = filled(&a, LEN, 5);
        let file = udmabuf::memory(LEN as u64).expect("memory");
        let dmabuf = udmabuf::export(&file, 0, LEN as u64).expect("dma-buf");
        let registered = b.register_dmabuf(dmabuf, 0, LEN);
        if !is_model() {
            let error = registered.expect_err("the software devices have no dma-bufs");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
            continue;
        }
        let target = registered.expect("region");
        let all = [Span::new(0, 0, LEN)];
        peer.write(&source, &target.remote(), &all, imm(1))
            .expect("write")
            .wait(SOON)
            .expect("written");
        b.imm_counter(1).wait(1, SOON).expect("arrived");
        let mut arrived = vec![0; LEN];
        file.read_exact_at(&mut arrived, 0).expect("in range");
        assert_eq!(arrived, pattern(LEN, 5), "{name}");

        file.write_all_at(&pattern(LEN, 6), 0).expect("in range");
        let copy = a.alloc(LEN).expect("region");
        a_of_b
            .write(&target, &copy.remote(), &all, imm(2))
            .expect("write")
            .wait(SOON)
            .expect("written");
        a.imm_counter(2).wait(1, SOON).expect("arrived");
        assert_eq!(bytes(&copy), pattern(LEN, 6), "{name}");
        file.write_all_at(&pattern(LEN, 7), 0).expect("in range");
        peer.read(&copy, &target.remote(), &all, TransferOptions::new())
            .expect("read")
            .wait(SOON)
            .expect("read");
        assert_eq!(bytes(&copy), pattern(LEN, 7), "{name}");
        let error = target.read(0, &mut arrived).expect_err("not accessible");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        target.release().wait(SOON).expect("released");
    }
}

/// Runs the test above on the model, in a kernel that has `/dev/udmabuf`.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn dma_bufs_work_on_the_model() {
    if is_model() {
        return report_no_device("this process has the model");
    }
    if !udmabuf::is_available() {
        return report_no_device("there is no /dev/udmabuf");
    }
    let mut command = process::ignored_test("a_dma_buf_is_source_and_target");
    use_model(&mut command);
    let output = process::output(&mut command);
    assert!(output.success(), "{output}");
    assert!(output.stdout.contains("device: mlx5_0"), "{output}");
    report_device("mlx5_0");
}

/// Number of bytes of the comparison, and of each of its transfers.
const ALL: usize = 64 << 20;
const ONE: usize = 1 << 20;
/// Length of a request.
const PIECE: usize = 256 << 10;

/// Returns the seconds that the engine needs to write all bytes.
fn engine_seconds(name: &str) -> f64 {
    let options = EngineOptions::new().stripe(PIECE).busy_poll(true);
    let [a, b] = [(); 2].map(|()| Engine::open(&[name], options).expect("engine"));
    let (peer, _a) = connect(&a, &b);
    let source = filled(&a, ONE, 1);
    let target = b.alloc(ONE).expect("region");
    let remote = target.remote();
    wait_ready(&peer);
    let start = Instant::now();
    let write = |_| {
        let all = [Span::new(0, 0, ONE)];
        peer.write(&source, &remote, &all, TransferOptions::new())
    };
    let transfers: Vec<_> = (0..ALL / ONE).map(write).collect();
    for transfer in transfers {
        transfer.expect("write").wait(SOON).expect("written");
    }
    start.elapsed().as_secs_f64()
}

/// Returns the seconds that a loop over one queue pair needs to write all bytes.
fn raw_seconds(name: &str) -> ibverbs::Result<f64> {
    let context = Device::by_name(name)?.open()?;
    let pd = context.alloc_pd()?;
    let port = context.query_port(1)?;
    let gid = context.select_gid(1, &GidQuery::default())?.entry.index;
    let path = RcPath::new(1, gid, port.active_mtu).access(AccessFlags::REMOTE_WRITE);
    let depth = 128_u32;
    let mut cq = context.create_cq(CqOptions::new().depth(2 * depth))?;
    let other = context.create_cq(CqOptions::new())?;
    let options = QpOptions::new().max_send_wr(depth);
    let mut a = pd.create_qp::<Rc>(&cq, &cq, options)?;
    let mut b = pd.create_qp::<Rc>(&other, &other, options)?;
    a.init(&path)?;
    b.init(&path)?;
    let (to_a, to_b) = (a.endpoint(&path)?, b.endpoint(&path)?);
    a.connect(&path, &to_b)?;
    b.connect(&path, &to_a)?;
    let source = pd.shared(ONE, AccessFlags::empty())?;
    let target = pd.shared(ONE, AccessFlags::REMOTE_WRITE)?;
    let (held, remote) = (a.hold(&source)?, target.remote());
    let (all, mut posted, mut done) = (ALL / PIECE, 0, 0);
    let start = Instant::now();
    while done < all {
        while posted < all && a.send_slots_free() > 0 && posted - done < depth as usize {
            let at = posted * PIECE % ONE;
            let source = held.slice(at..at + PIECE).expect("in range");
            let target = remote
                .slice(at as u64..at as u64 + PIECE as u64)
                .expect("in range");
            a.post_send(wr::write(source, target))?;
            posted += 1;
        }
        for completion in cq.poll()? {
            a.retire(completion)?.check()?;
            done += 1;
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_engine_is_compared_with_a_loop_over_one_queue_pair() {
    let _leak_check = leak_check();
    for name in device_names() {
        if is_iwarp(&name) {
            println!("unsupported: {name} `ibv_modify_qp`: RC without rdma_cm");
            continue;
        }
        report_device(&name);
        let mut ratios = Vec::new();
        for _ in 0..5 {
            let raw = raw_seconds(&name).expect("the loop");
            let engine = engine_seconds(&name);
            ratios.push(raw / engine);
            let mebibytes = u32::try_from(ALL >> 20).expect("fits");
            let gbits = |seconds: f64| 8.0 * f64::from(mebibytes) / 1024.0 / seconds;
            let (raw, engine) = (gbits(raw), gbits(engine));
            println!("{name}: engine {engine:.2} Gibit/s, loop {raw:.2} Gibit/s");
        }
        ratios.sort_by(f64::total_cmp);
        println!("{name}: ratio {:.2} (median of 5)", ratios[2]);
        assert!(ratios[4] > 0.1, "{name}: {ratios:?}");
    }
}
