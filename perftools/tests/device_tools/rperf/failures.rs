//! Invalid requests, lost peers and stalls.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use test_support::process::{self, wait_until};
use test_support::text::assert_contains;

use super::{KernelParameter, assert_verified, connect_options};
use crate::common::{Server, connects_directly, devices, fails, json, records, run, spawn};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn server_continues_after_a_client_is_killed() {
    for device in devices() {
        for connect in connect_options(&device) {
            let server = Server::with_options(&["-v", "--max-clients", "1"]);
            for test in ["rc_bw", "rc_lat", "rc_bi_bw"] {
                let line = format!("{} -i {device} {connect} -t 60 {test}", server.target());
                let mut client = spawn(&line);
                server.wait_for_log(&format!("{test} begins"));
                assert!(client.is_running(), "{line} exited");
                client.kill();
                server.wait_for_log("the client closed the connection");
                let line = format!(
                    "{} -i {device} {connect} --verify -n 10 -m 4K {test}",
                    server.target()
                );
                assert!(
                    wait_until(Duration::from_secs(30), || run(&line).success()),
                    "{line}: the server does not respond"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn client_fails_when_its_server_is_killed() {
    for device in devices() {
        for connect in connect_options(&device) {
            let server = Server::with_options(&["-v"]);
            let line = format!("{} -i {device} {connect} -t 60 rc_bw", server.target());
            let client = spawn(&line);
            server.wait_for_log("rc_bw begins");
            drop(server);
            let begin = Instant::now();
            let output = client.wait();
            let text = output.stderr.clone();
            assert_eq!(output.code(), Some(1), "{text}");
            assert!(text.contains("the server closed the connection"), "{text}");
            assert!(begin.elapsed() < Duration::from_secs(20));
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn server_continues_after_random_bytes() {
    for device in devices() {
        let server = Server::start();
        for seed in 0..20_u8 {
            let bytes: Vec<u8> = (0..1000_u32)
                .map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ seed)
                .collect();
            let mut stream = TcpStream::connect(("localhost", server.port)).unwrap();
            let _ = stream.write_all(&bytes);
        }
        for record in json(&format!(
            "{} -i {device} --verify -n 50 rc_bw",
            server.target()
        )) {
            assert_verified(&record, &device, 50, 65536);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn error_for_an_unknown_device_lists_the_available_ones() {
    let names = devices();
    let server = Server::start();
    for option in ["-i", "-li", "-ri"] {
        let text = fails(&format!("{} {option} nosuch0 rc_bw", server.target()), 1);
        assert!(
            text.contains("no RDMA device named `nosuch0`")
                && names.iter().all(|n| text.contains(n)),
            "{text}"
        );
        assert_eq!(text.contains("the server: "), option == "-ri", "{text}");
        // The log of the server says which end has no such device.
        server.wait_for_log(if option == "-ri" {
            ": no RDMA device named `nosuch0`"
        } else {
            "the client: no RDMA device named `nosuch0`"
        });
    }
    let text = fails(&format!("{} -i {}:9 rc_bw", server.target(), names[0]), 1);
    assert!(text.contains("has no port 9"), "{text}");
    server.assert_responds();
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn roce_and_iwarp_devices_cannot_be_combined() {
    let names = devices();
    let (direct, iwarp): (Vec<_>, Vec<_>) = names.iter().partition(|n| connects_directly(n));
    let (Some(roce), Some(iwarp)) = (direct.first(), iwarp.first()) else {
        return;
    };
    let text = fails(&format!("-li {roce} -ri {iwarp} rc_bw"), 1);
    assert!(text.contains("is iWARP, but the client"), "{text}");
    let text = fails(&format!("-i {iwarp} -cm0 rc_bw"), 1);
    assert!(text.contains("only be connected by rdma_cm"), "{text}");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn message_above_the_size_limit_is_rejected() {
    for device in devices() {
        let text = fails(&format!("-i {device} -m 8G rc_bw"), 2);
        assert_contains(&text, &["message size of 8 GiB: the maximum is 1 GiB"]);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn small_memlock_limit_is_reported_with_a_remedy() {
    for device in devices() {
        // A process with CAP_IPC_LOCK is not subject to the limit.
        let rperf = env!("CARGO_BIN_EXE_rperf");
        let script = format!(
            "ulimit -l 64; exec setpriv --bounding-set=-ipc_lock {rperf} -i {device} -m 4M rc_bw"
        );
        let output = process::output(Command::new("bash").args(["-c", &script]));
        assert_eq!(output.code(), Some(1), "{output}");
        assert!(output.stderr.contains("memlock"), "{output}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn unreachable_address_fails_in_time() {
    devices();
    let begin = Instant::now();
    // No host has an address in TEST-NET-1.
    let text = fails("-ws 1 192.0.2.1 rc_bw", 1);
    assert_contains(&text, &["cannot reach the server at 192.0.2.1"]);
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn client_times_out_when_its_server_hangs() {
    // The loops for bandwidth and for latency have a limit each. It does not depend on the device.
    // The limit also applies to the connection setup, which takes seconds on a busy emulated host.
    let tests = devices()
        .into_iter()
        .zip(["rc_bw", "rc_lat"].iter().cycle());
    let stopped = tests.map(|(device, test)| {
        let server = Server::with_options(&["-v"]);
        let line = format!("{} -i {device} -t 60 -lto 6 {test}", server.target());
        let client = spawn(&line);
        // A timeout during the connection setup has a different message.
        server.wait_for_log(&format!("{test} begins"));
        server.signal("STOP");
        (server, client, Instant::now())
    });
    for (_server, client, begin) in stopped.collect::<Vec<_>>() {
        let output = client.wait();
        let text = output.stderr.clone();
        assert_eq!(output.code(), Some(1), "{text}");
        assert_contains(&text, &["nothing arrived from the peer for 6 s"]);
        assert!(begin.elapsed() < Duration::from_secs(40));
    }
}

/// Returns the measurement of a client whose server was stopped for at least 1500 ms, after a
/// quarter of a test of `seconds`.
fn measure_with_stopped_server(device: &str, seconds: u32) -> Value {
    let server = Server::with_options(&["-v"]);
    let line = format!("--json {} -i {device} -t {seconds} rc_bw", server.target());
    let client = spawn(&line);
    server.wait_for_log("rc_bw begins");
    let quarter = Duration::from_secs(seconds.into()) / 4;
    for (signal, delay) in [("STOP", quarter), ("CONT", Duration::from_millis(1500))] {
        std::thread::sleep(delay);
        server.signal(signal);
    }
    let output = client.wait();
    records(&output.stdout)[0]["outcome"]["measured"].clone()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn stall_is_reported_without_an_option() {
    for device in devices() {
        // On a busy machine the server may be stopped before the first message or after the last
        // one. Then the test is repeated and takes longer.
        let stalled = |m: &Value| {
            m["local_stats"]["stalled"]
                .as_u64()
                .is_some_and(|nanos| nanos >= 400_000_000)
        };
        let m = [4, 8, 16, 32]
            .into_iter()
            .map(|seconds| measure_with_stopped_server(&device, seconds))
            .find(stalled)
            .expect("a stall");
        let warnings = m["warnings"].as_array().unwrap();
        assert!(
            warnings.iter().any(|warning| warning["kind"] == "stalled"),
            "{m:#}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn infiniband_only_options_are_rejected_in_one_line() {
    for device in devices() {
        let text = fails(&format!("-i {device} -sr 10 -n 1 rc_bw"), 1);
        assert!(
            text.contains("static rate") && text.contains(&device) && text.lines().count() == 1,
            "{text}"
        );
        let text = fails(&format!("-i {device} --pkey-index 7777 -n 1 rc_bw"), 1);
        let expected = if connects_directly(&device) {
            "help: set --pkey-index below"
        } else {
            "partition key"
        };
        assert!(text.contains(expected) && text.contains(&device), "{text}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn server_drops_a_stalled_client_of_one_sided_tests() {
    // The devices wait at the same time.
    let stopped = devices().into_iter().map(|device| {
        let server = Server::with_options(&["-v"]);
        let line = format!(
            "{} -i {device} -n 1000000000 -m 64 -rto 5 rc_rdma_read_bw",
            server.target()
        );
        let client = spawn(&line);
        server.wait_for_log("rc_rdma_read_bw begins");
        process::send_signal(client.id(), "STOP");
        (server, client)
    });
    for (server, client) in stopped.collect::<Vec<_>>() {
        server.wait_for_log("the peer sent no heartbeat for 10 s");
        client.kill();
    }
}

/// Delays all packets of the loopback interface. Dropping it ends the delay.
struct LoopbackDelay;

impl LoopbackDelay {
    fn new(delay: &str) -> Self {
        process::run_line(&format!("tc qdisc add dev lo root netem delay {delay}"));
        Self
    }
}

impl Drop for LoopbackDelay {
    fn drop(&mut self) {
        let _ = Command::new("tc")
            .args(["qdisc", "del", "dev", "lo", "root"])
            .status();
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn writes_are_verified_after_they_have_arrived() {
    // On iWARP a write completes when the local TCP stack has it, long before it arrives.
    for device in devices() {
        let _delay = LoopbackDelay::new("100ms");
        for options in ["", "--qps 4"] {
            let line = format!("-i {device} -to 30 --verify -n 20 {options} rc_rdma_write_bw");
            let measured = &json(&line)[0]["outcome"]["measured"];
            let verified = &measured["remote_stats"]["verified"];
            assert_eq!(verified.as_u64(), Some(20 * 65536), "{line}: {measured:#}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn time_limit_applies_to_each_connection_of_rdma_cm() {
    for device in devices() {
        let server = Server::start();
        let test = |timeout: Duration| {
            let begin = Instant::now();
            let output = run(&format!(
                "{} -i {device} --use-cm on --qps 300 --timeout {} -n 1200 -m 32 rc_bw",
                server.target(),
                timeout.as_secs_f64()
            ));
            (output, begin.elapsed())
        };
        let (output, time) = test(Duration::from_secs(100));
        assert!(output.success(), "{output}");
        // All connections together take longer than this limit, and each a fraction of it. A busy
        // machine can delay one.
        let attempts = (0..3).map(|_| test(time / 4).0);
        let failed: Vec<_> = attempts.take_while(|output| !output.success()).collect();
        assert!(failed.len() < 3, "{time:?}: {}", failed[0]);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_source_port_of_another_program_is_not_used() {
    let _range = KernelParameter::set("/proc/sys/net/ipv4/ip_local_port_range", "40000 40127");
    // The kernel prefers ports of one parity, so half of each is taken. Soft-iWARP needs a TCP port
    // for each connection, and rdma_cm does not know which ones are in use. A connection that an
    // earlier test closed can have one of the ports for another minute.
    let taken: Vec<TcpListener> = (40000..40128)
        .filter(|port| port & 2 == 0)
        .filter_map(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).ok())
        .collect();
    assert!(taken.len() >= 32, "{} ports are taken", taken.len());
    for device in devices() {
        let line = format!("-i {device} --use-cm on --qps 16 --verify -n 160 -m 32 rc_bw");
        assert_verified(&json(&line)[0], &device, 160, 32);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn limit_of_open_files_of_the_server_reaches_the_client() {
    for device in devices() {
        let port = process::free_tcp_port();
        let mut server = Command::new("sh");
        let script = "ulimit -n 64; exec $0 --port $1";
        server.args(["-c", script, env!("CARGO_BIN_EXE_rperf"), &port.to_string()]);
        let _server = process::Process::spawn(&mut server).wait_for_tcp_listener(port);
        let line =
            format!("localhost -lp {port} -i {device} --use-cm on --qps 100 -n 1000 -m 32 rc_bw");
        let text = fails(&line, 1);
        let expected = ["the server: ", "connection ", " of 100: ", "`ulimit -n`"];
        assert!(expected.iter().all(|words| text.contains(words)), "{text}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn link_local_addresses_work_with_rdma_cm() {
    for device in devices() {
        let netdev = test_support::lab::netdev(&device);
        let link_local = test_support::lab::link_local_address(&netdev);
        let server = Server::start();
        let line = format!(
            "{link_local}%{netdev} -lp {} -i {device} --use-cm on --verify -n 50 -m 4K rc_bw",
            server.port
        );
        let output = run(&line);
        assert!(
            output.success() && output.text().contains("fe80::"),
            "{output}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn remedy_for_gids_of_different_families_names_indices() {
    for context in test_support::lab::devices() {
        let device = context.device_name();
        test_support::lab::report_device(device);
        if !connects_directly(device) {
            continue;
        }
        let gids = context.gids(1).expect("the GIDs");
        let is_v4 = |gid: ibverbs::Gid| gid.to_ip().is_some_and(|ip| ip.is_ipv4());
        let index = |v4: bool| {
            let found = gids.iter().find(|entry| is_v4(entry.gid) == v4);
            found.expect("a GID of each family").index.0
        };
        let server = Server::start();
        let (local, remote) = (index(false), index(true));
        let line = format!(
            "{} -i {device} --gid-index local={local},remote={remote} -n 10 rc_bw",
            server.target()
        );
        let text = fails(&line, 1);
        let expected = format!("use GIDs of one family: --gid-index local={local},remote=");
        assert!(text.contains(&expected), "{text}");
    }
}
