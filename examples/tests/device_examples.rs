//! The examples on real drivers: each does what it says, those with a real counterpart speak with
//! it in either role, and on a device that cannot connect without rdma_cm they say so.

mod programs;

use std::time::Instant;

use examples::local::{Local, connect_pair};
use examples::resident_bytes;
use ibverbs::{AccessFlags, CqOptions, QpOptions, Rc};
use programs::{connects_directly, devices, example, run, start, tcp_port};
use test_support::leak_check::objects_of;
use test_support::process::Finished;

/// Ours as the server of the real one, as its client, and with itself; polling, which is slow where
/// both share a processor, and asleep.
fn speaks_with_the_real_one(ours: &str, real: &str, options: &str) {
    for device in devices() {
        let name = device.name();
        if !connects_directly(&device) {
            says_that_it_needs_rdma_cm(&run(ours, &format!("-d {name}")));
            continue;
        }
        let gid = Local::open(Some(name), 1, None)
            .expect("device")
            .gid
            .expect("an address")
            .index;
        // The real ones choose no GID. Ours checks, as a client, what comes back.
        let own = |program| {
            if program == real {
                format!("-g {gid}")
            } else {
                "-c".to_owned()
            }
        };
        for (server, client, wait) in [
            (ours, real, "-n 20"),
            (real, ours, "-n 200 -e"),
            (ours, ours, "-n 200 -e"),
        ] {
            let port = tcp_port();
            let line = format!("-d {name} -p {port} {options} {wait}");
            let waiting =
                start(server, &format!("{line} {}", own(server))).wait_for_tcp_listener(port);
            let client = run(client, &format!("{line} {} 127.0.0.1", own(client)));
            let server = waiting.wait();
            for ended in [client, server] {
                assert!(ended.success(), "{ended:?}");
                assert!(ended.stdout.contains(" iters in "), "{ended:?}");
            }
        }
    }
}

fn says_that_it_needs_rdma_cm(ended: &Finished) {
    assert!(!ended.success(), "{ended:?}");
    assert!(
        ended.stderr.contains("connects_directly by rdma_cm only"),
        "{ended:?}"
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rc_pingpong_speaks_with_the_real_one_in_either_role() {
    speaks_with_the_real_one(
        example!("rc_pingpong"),
        "ibv_rc_pingpong",
        "-s 5000 -m 2048 -r 100",
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn uc_pingpong_speaks_with_the_real_one_in_either_role() {
    speaks_with_the_real_one(
        example!("uc_pingpong"),
        "ibv_uc_pingpong",
        "-s 5000 -m 2048 -r 100",
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn ud_pingpong_speaks_with_the_real_one_in_either_role() {
    speaks_with_the_real_one(example!("ud_pingpong"), "ibv_ud_pingpong", "-r 100");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn srq_pingpong_speaks_with_the_real_one_in_either_role() {
    speaks_with_the_real_one(
        example!("srq_pingpong"),
        "ibv_srq_pingpong",
        "-s 5000 -m 2048 -r 100 -q 7",
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn sizes_that_differ_and_what_does_not_exist_are_said_in_words() {
    let ours = example!("rc_pingpong");
    for device in devices().iter().filter(|device| connects_directly(device)) {
        let (name, port) = (device.name(), tcp_port());
        let server =
            start(ours, &format!("-d {name} -p {port} -s 100")).wait_for_tcp_listener(port);
        let client = start(ours, &format!("-d {name} -p {port} -s 90 127.0.0.1"));
        let ended = server.wait();
        client.kill(); // it waits a while for an answer
        assert!(
            ended
                .stderr
                .contains("the peer sends 90 bytes, this side 100: give both the same -s"),
            "{ended:?}"
        );

        let ended = run(ours, &format!("-d {name} -g 200"));
        assert!(
            ended.stderr.contains("no GID with index 200; it has: 0 "),
            "{ended:?}"
        );
        let ended = run(ours, &format!("-d {name} -p {port} 127.0.0.1"));
        assert!(
            ended.stderr.contains("127.0.0.1 port ") && ended.stderr.contains("refused"),
            "{ended:?}"
        );
        let ended = run(example!("ud_pingpong"), &format!("-d {name} -s 5000"));
        assert!(
            ended
                .stderr
                .contains("5000 bytes are more than the port's MTU"),
            "{ended:?}"
        );
    }
    let ended = run(ours, "-d nosuch0");
    assert!(
        ended.stderr.contains("nosuch0") && ended.stderr.contains("this host has"),
        "{ended:?}"
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn devinfo_names_every_device_and_loopback_brings_the_message() {
    for device in devices() {
        let ended = run(example!("devinfo"), "");
        assert!(
            ended.success() && ended.stdout.contains(&format!("{} (", device.name())),
            "{ended:?}"
        );
        let ended = run(example!("loopback"), device.name());
        if connects_directly(&device) {
            assert!(
                ended.success() && ended.stdout.contains("received \"hello\""),
                "{ended:?}"
            );
        } else {
            says_that_it_needs_rdma_cm(&ended);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rdma_ops_shows_each_operation_and_a_refusal() {
    for device in devices() {
        let ended = run(example!("rdma_ops"), &format!("-d {}", device.name()));
        if !connects_directly(&device) {
            says_that_it_needs_rdma_cm(&ended);
            continue;
        }
        assert!(ended.success(), "{ended:?}");
        let lines: Vec<&str> = ended.stdout.lines().collect();
        assert_eq!(
            lines,
            [
                "write: the server's memory is \"hello\"",
                "write with immediate: the server hears of 5 bytes and Some(42)",
                "read: \"HELLO\"",
                "fetch and add 2: 40 became 42",
                "swap 41 for 7: 42 became 42",
                "swap 42 for 7: 42 became 7",
                "write to read-only memory: remote access error; the queue pair is in state ERR",
            ]
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn kv_gives_whole_values_though_readers_meet_half_written_ones() {
    let kv = example!("kv");
    for device in devices() {
        let (name, port) = (device.name(), tcp_port());
        if !connects_directly(&device) {
            says_that_it_needs_rdma_cm(&run(kv, &format!("-d {name} serve")));
            continue;
        }
        let line = format!("-d {name} -p {port}");
        let serve = "serve --clients 2 --places 8 --pause 2 --every 1 colour=blue shape=round a=1 b=2 c=3 d=4 e=5";
        let server = start(kv, &format!("{line} {serve}")).wait_for_tcp_listener(port);
        let ended = run(kv, &format!("{line} get 127.0.0.1 colour e nothing"));
        assert!(ended.success(), "{ended:?}");
        for expected in [
            "colour = blue (version 1)",
            "e = 5 (version 1)",
            "nothing is not there",
        ] {
            assert!(
                ended.stdout.lines().any(|line| line == expected),
                "{expected}: {ended:?}"
            );
        }
        let ended = run(kv, &format!("{line} get 127.0.0.1 -n 200 clock"));
        assert!(server.wait().success() && ended.success(), "{ended:?}");
        let mut versions = Vec::new();
        for line in ended
            .stdout
            .lines()
            .filter(|line| line.starts_with("clock = "))
        {
            let mut numbers: Vec<&str> = line
                .trim_start_matches("clock = ")
                .split_whitespace()
                .collect();
            let version = numbers.split_off(20).concat();
            assert!(
                numbers.iter().all(|number| *number == numbers[0]),
                "of two times: {line}"
            );
            let digits: String = version.chars().filter(char::is_ascii_digit).collect();
            versions.push(digits.parse::<u64>().expect("a version"));
        }
        assert!(
            versions.is_sorted() && versions.len() > 150,
            "versions only grow"
        );
        assert!(
            versions.first() < versions.last(),
            "the server went on writing"
        );
        let torn = ended
            .stdout
            .lines()
            .last()
            .and_then(|line| line.split_whitespace().nth(2))
            .expect("a count");
        assert_ne!(torn, "0", "no reader met a half-written entry");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn many_qps_moves_all_messages_of_1024_queue_pairs_by_one_channel() {
    let many = example!("many_qps");
    for device in devices() {
        let ended = run(many, &format!("-d {} -c 512 -n 20", device.name()));
        if !connects_directly(&device) {
            says_that_it_needs_rdma_cm(&ended);
            continue;
        }
        assert!(ended.success(), "{ended:?}");
        assert!(
            ended
                .stdout
                .starts_with("1024 queue pairs on 4 completion queues"),
            "{ended:?}"
        );
        assert!(ended.stdout.contains("20480 messages in"), "{ended:?}");
        assert!(ended.stdout.contains("0 objects leaked"), "{ended:?}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_process_can_have_1024_connected_queue_pairs_and_leaves_none() {
    const PAIRS: u64 = 512;
    for device in devices().iter().filter(|device| connects_directly(device)) {
        let before = objects_of(device.name());
        assert!(before.contains_key("qp"), "rdma resource show: {before:?}");
        let local = Local::open(Some(device.name()), 1, None).expect("device");
        let pd = local.context.alloc_pd().expect("domain");
        let cq = local
            .context
            .create_cq(CqOptions {
                depth: 4096,
                ..CqOptions::default()
            })
            .expect("queue");
        let path = local.path(local.port.active_mtu, AccessFlags::empty());

        for options in [
            QpOptions {
                max_send_wr: 2,
                max_recv_wr: 2,
                max_batch: 1,
                ..QpOptions::default()
            },
            QpOptions::default(),
        ] {
            let (begun, resident) = (Instant::now(), resident_bytes().expect("VmRSS"));
            let mut pairs = Vec::new();
            for _ in 0..PAIRS {
                let a = pd.create_qp::<Rc>(&cq, &cq, options).expect("a");
                pairs.push((a, pd.create_qp::<Rc>(&cq, &cq, options).expect("b")));
            }
            let created = begun.elapsed();
            let memory = resident_bytes().expect("VmRSS").saturating_sub(resident) / (2 * PAIRS);
            for (a, b) in &mut pairs {
                connect_pair(&path, a, b).expect("connect");
            }
            let connected = begun.elapsed().saturating_sub(created);
            assert_eq!(objects_of(device.name())["qp"], before["qp"] + 2 * PAIRS);
            let begun = Instant::now();
            drop(pairs);
            println!(
                "{} queue pairs of {} + {} requests: {memory} resident bytes each, created in {created:.0?}, connected in {connected:.0?}, \
                 destroyed in {:.0?}",
                2 * PAIRS,
                options.max_send_wr,
                options.max_recv_wr,
                begun.elapsed()
            );
            assert_eq!(
                objects_of(device.name())["qp"],
                before["qp"],
                "queue pairs are left"
            );
        }
        drop((cq, pd, local));
        assert_eq!(objects_of(device.name()), before);
        assert_eq!(ibverbs::leaked_objects(), 0);
    }
}
