//! Runs the examples that exchange addresses over TCP on real drivers.
//!
//! Examples with a counterpart in rdma-core interoperate with it as client and as server. On a
//! device that needs rdma_cm to connect, the examples fail with a message that says so.

mod programs;

use std::time::Instant;

use ibverbs::{CqOptions, Device, GidQuery, QpOptions, Rc, RcPath};
use programs::{assert_success, connects_directly, devices, example, run, start, tcp_port};
use test_support::leak_check::objects_of;
use test_support::process::{Finished, memory};

/// TCP port of the ping-pong programs.
const PINGPONG_PORT: u16 = 18515;

/// Runs an example as the server of a C program, as its client, and with itself.
///
/// The C program sleeps instead of polling (`-e`), which is slow if both programs share a CPU.
fn check_interoperability(ours: &str, c_program: &str) {
    for device in devices() {
        let name = device.name();
        if !connects_directly(&device) {
            assert_requires_rdma_cm(&run(ours, name));
            continue;
        }
        let gid = gid_index(&device);
        let c_options = format!("-d {name} -g {gid} -e");
        let options = |program| if program == ours { name } else { &c_options };
        for (server, client) in [(ours, c_program), (c_program, ours), (ours, ours)] {
            let started = start(server, options(server)).wait_for_tcp_listener(PINGPONG_PORT);
            let client = run(client, &format!("{} 127.0.0.1", options(client)));
            for finished in assert_success([started.wait(), client]) {
                assert!(finished.stdout.contains("1000 iters in "), "{finished:?}");
            }
        }
    }
}

/// Returns the index of the GID that the examples choose. The C programs do not choose one.
fn gid_index(device: &Device) -> u32 {
    let context = device.open().expect("open");
    let choice = context.select_gid(1, &GidQuery::default()).expect("a GID");
    choice.entry.index.into()
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
    check_interoperability(example!("rc_pingpong"), "ibv_rc_pingpong");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn ud_pingpong_interoperates_with_ibv_ud_pingpong() {
    check_interoperability(example!("ud_pingpong"), "ibv_ud_pingpong");
}

/// No device of the lab has XRC.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn xrc_pingpong_reports_a_device_without_xrc() {
    for device in devices() {
        let finished = run(example!("xrc_pingpong"), device.name());
        assert!(
            !finished.success() && finished.stderr.contains("XRC domain"),
            "{finished:?}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn pingpong_reports_wrong_arguments_and_peers() {
    let ours = example!("rc_pingpong");
    for device in devices().iter().filter(|device| connects_directly(device)) {
        let (name, gid) = (device.name(), gid_index(device));
        for (options, expected) in [
            (
                format!("-g {gid} -s 90"),
                "received 90 bytes, expected 4096 bytes; help: ",
            ),
            (String::new(), "the peer sent no GID; help: "),
        ] {
            let server = start(ours, name).wait_for_tcp_listener(PINGPONG_PORT);
            let client = start(
                "ibv_rc_pingpong",
                &format!("-d {name} {options} -e 127.0.0.1"),
            );
            let finished = server.wait();
            client.kill(); // it has no timeout
            assert!(
                !finished.success() && finished.stderr.contains(expected),
                "{finished:?}"
            );
        }
        let finished = run(ours, &format!("{name} 127.0.0.1"));
        assert!(
            finished.stderr.contains("127.0.0.1, TCP port 18515: ")
                && finished.stderr.contains("refused"),
            "{finished:?}"
        );
    }
    let finished = run(ours, "nosuch0");
    assert!(
        finished.stderr.contains("nosuch0") && finished.stderr.contains("available"),
        "{finished:?}"
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn list_devices_and_loopback_run_on_every_device() {
    for device in devices() {
        let finished = run(example!("list_devices"), "");
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
fn one_sided_writes_and_reads_memory_of_the_server() {
    let ours = example!("one_sided");
    for device in devices() {
        let name = device.name();
        if !connects_directly(&device) {
            assert_requires_rdma_cm(&run(ours, name));
            continue;
        }
        let server = start(ours, name).wait_for_tcp_listener(18516);
        let client = run(ours, &format!("{name} 127.0.0.1"));
        let [server, client] = assert_success([server.wait(), client]);
        assert_eq!(
            client.stdout.lines().collect::<Vec<_>>(),
            [
                "READ \"good morning\"",
                "WRITE \"good evening\" with immediate data 42",
                "WRITE to read-only memory: remote access error",
                "queue pair in state ERR",
            ]
        );
        assert_eq!(
            server.stdout.trim_end(),
            "the client wrote \"good evening\" with immediate data 42"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn atomics_draw_each_number_once() {
    let ours = example!("atomics");
    for device in devices() {
        let name = device.name();
        if !connects_directly(&device) {
            assert_requires_rdma_cm(&run(ours, name));
            continue;
        }
        let server = start(ours, name).wait_for_tcp_listener(18517);
        // The first client returns its last number, so the second one draws it again.
        for first in [1, 5] {
            let [client] = assert_success([run(ours, &format!("{name} 127.0.0.1"))]);
            let mut expected: Vec<String> = (first..first + 5)
                .map(|number| format!("drew {number}"))
                .collect();
            expected.push(format!("returned {}", first + 4));
            assert_eq!(client.stdout.lines().collect::<Vec<_>>(), expected);
        }
        server.kill();
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_port_of_rc_pingpong_has_its_options() {
    let ours = example!("sideway_rc_pingpong");
    for device in devices() {
        let (name, port) = (device.name(), tcp_port());
        let stamped = run(ours, &format!("-d {name} -r 7 -t"));
        assert!(
            !stamped.success() && stamped.stderr.contains("8 entries with timestamp"),
            "the software devices have no timestamps: {stamped:?}"
        );
        let is_iwarp = !connects_directly(&device);
        let gid = if is_iwarp { 0 } else { gid_index(&device) };
        // With fewer receives than messages, a message can wait for one, 655 ms each time.
        let options =
            format!("-d {name} -i 1 -g {gid} -p {port} -s 2048 -m 512 -r 300 -n 200 -l 1");
        let server = start(ours, &options).wait_for_tcp_listener(port);
        let client = run(ours, &format!("{options} 127.0.0.1"));
        let finished = [server.wait(), client];
        if is_iwarp {
            finished.iter().for_each(assert_requires_rdma_cm);
            continue;
        }
        for finished in assert_success(finished) {
            for expected in ["819200 bytes in ", "200 iters in "] {
                assert!(finished.stdout.contains(expected), "{finished:?}");
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_port_of_doorbell_batching_completes_twice() {
    for device in devices() {
        let finished = run(example!("ibverbs_doorbell_batching"), device.name());
        if !connects_directly(&device) {
            assert_requires_rdma_cm(&finished);
            continue;
        }
        assert!(finished.success(), "{finished:?}");
        let (completions, others): (Vec<_>, Vec<_>) = finished
            .stdout
            .lines()
            .partition(|line| line.starts_with("completion: "));
        assert_eq!(completions.len(), 2, "no write is signaled: {finished:?}");
        for expected in [
            "Send chain completed successfully.",
            "Receive notification completed successfully. Count of writes: 5",
            "Written data in destination buffer: \"Hello from chained RDMA writes!\"",
        ] {
            assert!(others.contains(&expected), "{finished:?}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn many_qps_completes_with_1024_queue_pairs() {
    let many = example!("many_qps");
    for device in devices() {
        let finished = run(many, &format!("{} 512", device.name()));
        if !connects_directly(&device) {
            assert_requires_rdma_cm(&finished);
            continue;
        }
        assert!(finished.success(), "{finished:?}");
        for expected in ["1024 queue pairs", "20480 messages in", "0 objects leaked"] {
            assert!(finished.stdout.contains(expected), "{finished:?}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_process_connects_and_destroys_1024_queue_pairs() {
    const PAIRS: u64 = 512;
    for device in devices().iter().filter(|device| connects_directly(device)) {
        let before = objects_of(device.name());
        assert!(before.contains_key("qp"), "rdma resource show: {before:?}");
        let context = device.open().expect("open");
        let gid = context
            .select_gid(1, &GidQuery::default())
            .expect("a GID")
            .entry;
        let mtu = context.query_port(1).expect("port").active_mtu;
        let path = RcPath::new(1, gid.index, mtu);
        let pd = context.alloc_pd().expect("domain");
        let cq = context
            .create_cq(CqOptions::new().depth(4096))
            .expect("queue");

        for options in [
            QpOptions::new().max_send_wr(2).max_recv_wr(2).max_batch(1),
            QpOptions::default(),
        ] {
            let (start, resident) = (Instant::now(), resident_bytes());
            let mut pairs = Vec::new();
            for _ in 0..PAIRS {
                let a = pd.create_qp::<Rc>(&cq, &cq, options).expect("a");
                pairs.push((a, pd.create_qp::<Rc>(&cq, &cq, options).expect("b")));
            }
            let created = start.elapsed();
            let memory = resident_bytes().saturating_sub(resident) / (2 * PAIRS);
            for (a, b) in &mut pairs {
                for qp in [&mut *a, &mut *b] {
                    qp.init(&path).expect("init");
                }
                let (end_a, end_b) = (a.endpoint(&path).expect("a"), b.endpoint(&path).expect("b"));
                a.connect(&path, &end_b).expect("connect a");
                b.connect(&path, &end_a).expect("connect b");
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
        drop((cq, pd, context));
        assert_eq!(objects_of(device.name()), before);
        assert_eq!(ibverbs::leaked_objects(), 0);
    }
}

/// Returns the resident memory of this process in bytes.
fn resident_bytes() -> u64 {
    memory(std::process::id(), "VmRSS")
}
