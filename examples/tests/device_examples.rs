//! Runs the examples that exchange addresses over TCP on real drivers.
//!
//! Examples with a counterpart in rdma-core interoperate with it as client and as server. On a
//! device that needs rdma_cm to connect, the examples fail with a message that says so.

mod programs;

use std::time::Instant;

use examples::local::{Local, connect_pair};
use examples::resident_bytes;
use ibverbs::{AccessFlags, CqOptions, QpOptions, Rc};
use programs::{connects_directly, devices, example, run, start, tcp_port};
use test_support::leak_check::objects_of;
use test_support::process::Finished;

/// Runs an example as the server of a C program, as its client, and with itself.
///
/// The runs with `-e` sleep instead of polling, which is slow if both programs share a CPU.
fn check_interoperability(ours: &str, c_program: &str, options: &str) {
    for device in devices() {
        let name = device.name();
        if !connects_directly(&device) {
            assert_requires_rdma_cm(&run(ours, &format!("-d {name}")));
            continue;
        }
        let gid = Local::open(Some(name), 1, None)
            .expect("device")
            .gid
            .expect("a GID")
            .index;
        // The C programs do not choose a GID. Our client verifies the received data.
        let extra = |program| {
            if program == c_program {
                format!("-g {gid}")
            } else {
                "-c".to_owned()
            }
        };
        for (server, client, wait) in [
            (ours, c_program, "-n 20"),
            (c_program, ours, "-n 200 -e"),
            (ours, ours, "-n 200 -e"),
        ] {
            let port = tcp_port();
            let options = format!("-d {name} -p {port} {options} {wait}");
            let server =
                start(server, &format!("{options} {}", extra(server))).wait_for_tcp_listener(port);
            let client = run(client, &format!("{options} {} 127.0.0.1", extra(client)));
            let server = server.wait();
            for finished in [client, server] {
                assert!(finished.success(), "{finished:?}");
                assert!(finished.stdout.contains(" iters in "), "{finished:?}");
            }
        }
    }
}

fn assert_requires_rdma_cm(finished: &Finished) {
    assert!(
        !finished.success() && finished.stderr.contains("rdma_cm"),
        "{finished:?}"
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rc_pingpong_interoperates_with_ibv_rc_pingpong() {
    check_interoperability(
        example!("rc_pingpong"),
        "ibv_rc_pingpong",
        "-s 5000 -m 2048 -r 100",
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn uc_pingpong_interoperates_with_ibv_uc_pingpong() {
    check_interoperability(
        example!("uc_pingpong"),
        "ibv_uc_pingpong",
        "-s 5000 -m 2048 -r 100",
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn ud_pingpong_interoperates_with_ibv_ud_pingpong() {
    check_interoperability(example!("ud_pingpong"), "ibv_ud_pingpong", "-r 100");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn srq_pingpong_interoperates_with_ibv_srq_pingpong() {
    check_interoperability(
        example!("srq_pingpong"),
        "ibv_srq_pingpong",
        "-s 5000 -m 2048 -r 100 -q 7",
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn wrong_options_are_reported() {
    let ours = example!("rc_pingpong");
    for device in devices().iter().filter(|device| connects_directly(device)) {
        let (name, port) = (device.name(), tcp_port());
        let server =
            start(ours, &format!("-d {name} -p {port} -s 100")).wait_for_tcp_listener(port);
        let client = start(ours, &format!("-d {name} -p {port} -s 90 127.0.0.1"));
        let finished = server.wait();
        client.kill(); // instead of waiting for its timeout
        assert!(
            finished
                .stderr
                .contains("received 90 bytes, expected 100 bytes\nhelp: "),
            "{finished:?}"
        );

        let finished = run(ours, &format!("-d {name} -g 200"));
        assert!(
            finished
                .stderr
                .contains("GID with index 200: port 1 has none; available: 0 "),
            "{finished:?}"
        );
        let finished = run(ours, &format!("-d {name} -p {port} 127.0.0.1"));
        assert!(
            finished.stderr.contains("127.0.0.1, TCP port ") && finished.stderr.contains("refused"),
            "{finished:?}"
        );
        let finished = run(example!("ud_pingpong"), &format!("-d {name} -s 5000"));
        assert!(
            finished.stderr.contains("send messages of 5000 bytes: "),
            "{finished:?}"
        );
    }
    let finished = run(ours, "-d nosuch0");
    assert!(
        finished.stderr.contains("nosuch0") && finished.stderr.contains("available"),
        "{finished:?}"
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn devinfo_and_loopback_run_on_every_device() {
    for device in devices() {
        let finished = run(example!("devinfo"), "");
        assert!(
            finished.success() && finished.stdout.contains(&format!("{} (", device.name())),
            "{finished:?}"
        );
        let finished = run(example!("loopback"), device.name());
        if connects_directly(&device) {
            assert!(
                finished.success() && finished.stdout.contains("received \"hello\""),
                "{finished:?}"
            );
        } else {
            assert_requires_rdma_cm(&finished);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rdma_ops_prints_each_operation() {
    for device in devices() {
        let finished = run(example!("rdma_ops"), &format!("-d {}", device.name()));
        if !connects_directly(&device) {
            assert_requires_rdma_cm(&finished);
            continue;
        }
        assert!(finished.success(), "{finished:?}");
        let lines: Vec<&str> = finished.stdout.lines().collect();
        assert_eq!(
            lines,
            [
                "write: the server's memory is \"hello\"",
                "write with immediate data: the server received 5 bytes and Some(42)",
                "read: \"HELLO\"",
                "fetch and add 2: 40 is now 42",
                "compare with 41 and swap to 7: 42 is now 42",
                "compare with 42 and swap to 7: 42 is now 7",
                "write to read-only memory: remote access error; the queue pair is in state ERR",
            ]
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn kv_returns_consistent_values_during_writes() {
    let kv = example!("kv");
    for device in devices() {
        let (name, port) = (device.name(), tcp_port());
        if !connects_directly(&device) {
            assert_requires_rdma_cm(&run(kv, &format!("-d {name} serve")));
            continue;
        }
        let options = format!("-d {name} -p {port}");
        let serve = "serve --clients 2 --places 8 --pause 2 --every 1 colour=blue shape=round a=1 b=2 c=3 d=4 e=5";
        let server = start(kv, &format!("{options} {serve}")).wait_for_tcp_listener(port);
        let finished = run(kv, &format!("{options} get 127.0.0.1 colour e nothing"));
        assert!(finished.success(), "{finished:?}");
        for expected in [
            "colour = blue (version 1)",
            "e = 5 (version 1)",
            "nothing not found",
        ] {
            assert!(
                finished.stdout.lines().any(|line| line == expected),
                "{expected}: {finished:?}"
            );
        }
        let finished = run(kv, &format!("{options} get 127.0.0.1 -n 200 clock"));
        assert!(
            server.wait().success() && finished.success(),
            "{finished:?}"
        );
        let mut versions = Vec::new();
        for line in finished
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
                "a mixture of two versions: {line}"
            );
            let digits: String = version.chars().filter(char::is_ascii_digit).collect();
            versions.push(digits.parse::<u64>().expect("a version"));
        }
        assert!(
            versions.is_sorted() && versions.len() > 150,
            "versions must not decrease"
        );
        assert!(
            versions.first() < versions.last(),
            "the server did not write during the reads"
        );
        let torn = finished
            .stdout
            .lines()
            .last()
            .and_then(|line| line.split_whitespace().nth(2))
            .expect("the number of torn reads");
        assert_ne!(torn, "0", "no read was torn");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn many_qps_completes_with_1024_queue_pairs() {
    let many = example!("many_qps");
    for device in devices() {
        let finished = run(many, &format!("-d {} -c 512 -n 20", device.name()));
        if !connects_directly(&device) {
            assert_requires_rdma_cm(&finished);
            continue;
        }
        assert!(finished.success(), "{finished:?}");
        assert!(
            finished
                .stdout
                .starts_with("1024 queue pairs on 4 completion queues"),
            "{finished:?}"
        );
        assert!(
            finished.stdout.contains("20480 messages in"),
            "{finished:?}"
        );
        assert!(finished.stdout.contains("0 objects leaked"), "{finished:?}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_process_connects_and_destroys_1024_queue_pairs() {
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
            let (start, resident) = (Instant::now(), resident_bytes().expect("VmRSS"));
            let mut pairs = Vec::new();
            for _ in 0..PAIRS {
                let a = pd.create_qp::<Rc>(&cq, &cq, options).expect("a");
                pairs.push((a, pd.create_qp::<Rc>(&cq, &cq, options).expect("b")));
            }
            let created = start.elapsed();
            let memory = resident_bytes().expect("VmRSS").saturating_sub(resident) / (2 * PAIRS);
            for (a, b) in &mut pairs {
                connect_pair(&path, a, b).expect("connect");
            }
            let connected = start.elapsed().saturating_sub(created);
            assert_eq!(objects_of(device.name())["qp"], before["qp"] + 2 * PAIRS);
            let start = Instant::now();
            drop(pairs);
            println!(
                "{} queue pairs with {} sends and {} receives: {memory} resident bytes each, \
                 created in {created:.0?}, connected in {connected:.0?}, destroyed in {:.0?}",
                2 * PAIRS,
                options.max_send_wr,
                options.max_recv_wr,
                start.elapsed()
            );
            assert_eq!(
                objects_of(device.name())["qp"],
                before["qp"],
                "queue pairs leaked"
            );
        }
        drop((cq, pd, local));
        assert_eq!(objects_of(device.name()), before);
        assert_eq!(ibverbs::leaked_objects(), 0);
    }
}
