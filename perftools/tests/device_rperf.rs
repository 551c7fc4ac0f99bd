//! `rperf` on real drivers.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Server, addresses, connects_directly, devices, fails, json, netdev, rperf, run};
use serde_json::Value;

/// The ways to connect that a device has.
fn ways(device: &str) -> Vec<&'static str> {
    if connects_directly(device) {
        vec!["", "-cm1"]
    } else {
        vec![""]
    }
}

/// Checks the record of a test by count with `--verify`.
fn assert_verified(record: &Value, device: &str, messages: u64, size: u64) {
    let m = &record["outcome"]["measured"];
    assert_eq!(m["local"]["device"], device, "{record:#}");
    let test = record["test"].as_str().unwrap();
    let number = |side: &str, path: [&str; 2]| m[side][path[0]][path[1]].as_u64().unwrap();
    let here = if test == "rc_bw" { 0 } else { messages };
    assert_eq!(
        number("remote_stats", ["received", "msgs"]),
        messages,
        "{record:#}"
    );
    assert_eq!(
        number("local_stats", ["received", "msgs"]),
        here,
        "{record:#}"
    );
    assert_eq!(
        number("local_stats", ["sent", "msgs"]),
        messages,
        "{record:#}"
    );
    assert_eq!(
        m["remote_stats"]["verified"].as_u64().unwrap(),
        messages * size,
        "{record:#}"
    );
    assert_eq!(
        m["local_stats"]["verified"].as_u64().unwrap(),
        here * size,
        "{record:#}"
    );
    if test == "rc_lat" {
        assert_eq!(m["latency"]["samples"], messages, "{record:#}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn both_ends_in_one_command_with_every_byte_checked() {
    for device in devices() {
        let tests = json(&format!(
            "-i {device} --verify -n 30 -m 64K rc_bw rc_lat rc_bi_bw"
        ));
        assert_eq!(tests.len(), 3);
        for record in &tests {
            assert_verified(record, &device, 30, 65536);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn client_and_server_as_two_processes_each_way_to_connect() {
    for device in devices() {
        let server = Server::start();
        for way in ways(&device) {
            for size in [1, 200_001] {
                let n = if size > 100_000 { 3 } else { 50 };
                let line = format!(
                    "{} -i {device} {way} --verify -n {n} -m {size} rc_bw rc_lat rc_bi_bw",
                    server.here()
                );
                for record in json(&line) {
                    assert_verified(&record, &device, n, size);
                    let cm = &record["outcome"]["measured"]["local"]["cm"];
                    assert_eq!(
                        *cm,
                        !way.is_empty() || !connects_directly(&device),
                        "{record:#}"
                    );
                }
            }
        }
    }
}

/// All tests that move data: the atomics, whose size is 8, and the others.
const ATOMICS: &str = "rc_compare_swap_mr rc_compare_swap_lat rc_fetch_add_mr rc_fetch_add_lat ver_rc_compare_swap \
    ver_rc_fetch_add";
const OTHERS: &str = "rc_bw rc_bi_bw rc_lat rc_rdma_write_bw rc_rdma_write_bi_bw rc_rdma_write_lat \
    rc_rdma_write_poll_lat rc_rdma_read_bw rc_rdma_read_bi_bw rc_rdma_read_lat uc_bw uc_bi_bw uc_lat uc_rdma_write_bw \
    uc_rdma_write_bi_bw uc_rdma_write_lat uc_rdma_write_poll_lat ud_bw ud_bi_bw ud_lat xrc_bw xrc_bi_bw xrc_lat";

/// What a device lacks for a test, as rperf has to say it.
fn lacking(device: &str, test: &str, way: &str) -> Option<&'static str> {
    let direct = connects_directly(device);
    match test.split('_').next() {
        Some("uc") if way == "-cm1" => Some("by rdma_cm: it connects RC and finds UD"),
        Some("xrc") if way == "-cm1" => Some("by rdma_cm: rperf connects both halves of XRC"),
        Some("xrc") => Some("needs XRC"),
        Some("uc") if !direct => Some("needs UC"),
        Some("ud") if !direct => Some("needs UD"),
        _ if !direct && (test.contains("compare") || test.contains("fetch")) => {
            Some("needs atomics")
        }
        _ => None,
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn every_test_each_way_to_connect_checks_every_byte_or_says_what_the_device_lacks() {
    for device in devices() {
        let server = Server::start();
        for way in ways(&device) {
            let (runs, lacks): (Vec<_>, Vec<_>) = ATOMICS
                .split_whitespace()
                .chain(["-m", "4001"])
                .chain(OTHERS.split_whitespace())
                .partition(|test| lacking(&device, test, way).is_none());
            let n = 14;
            let line = format!(
                "{} -i {device} {way} --verify -n {n} {}",
                server.here(),
                runs.join(" ")
            );
            let records = json(&line);
            assert_eq!(records.len(), runs.len() - 2);
            for record in records {
                let m = &record["outcome"]["measured"];
                let sum = |path: [&str; 2]| -> u64 {
                    ["local_stats", "remote_stats"]
                        .iter()
                        .map(|side| m[side][path[0]][path[1]].as_u64().unwrap())
                        .sum()
                };
                let verified: u64 = ["local_stats", "remote_stats"]
                    .iter()
                    .map(|side| m[side]["verified"].as_u64().unwrap())
                    .sum();
                let lost: u64 = ["local_stats", "remote_stats"]
                    .iter()
                    .map(|s| m[s]["lost"].as_u64().unwrap())
                    .sum();
                let (sent, received) = (sum(["sent", "msgs"]), sum(["received", "msgs"]));
                let directions = if record["test"].as_str().unwrap().contains("_bi_") {
                    2
                } else {
                    1
                };
                assert!(
                    sent + received >= n * directions && sent + received + lost >= n,
                    "{record:#}"
                );
                assert!(verified > 0, "{record:#}");
            }
            if lacks.is_empty() {
                continue;
            }
            let text = fails(
                &format!(
                    "{} -i {device} {way} -n {n} --keep-going {}",
                    server.here(),
                    lacks.join(" ")
                ),
                1,
            );
            assert_eq!(text.lines().count(), lacks.len(), "{text}");
            for test in lacks {
                let said = [format!("rperf: {test}: "), format!("rperf: {test} ")];
                let line = text
                    .lines()
                    .find(|line| said.iter().any(|s| line.starts_with(s)));
                assert!(
                    line.unwrap_or_default()
                        .contains(lacking(&device, test, way).unwrap()),
                    "{test}: {text}"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_timed_test_prints_qperfs_lines_and_the_path() {
    for device in devices() {
        let output = run(&format!("-i {device} -t 200ms rc_bw rc_lat"));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        for line in [
            "rc_bw:\n    bw  =  ",
            "rc_lat:\n    latency  =  ",
            "    p99.9  =  ",
            &format!("    via  =  {device}:1 "),
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn every_way_to_wait_and_every_depth_moves_all_messages() {
    for device in devices() {
        for wait in ["-cp0", "-cp1", ""] {
            for depth in [1, 50] {
                let tests = json(&format!(
                    "-i {device} {wait} --depth {depth} -n 60 -m 2K rc_bi_bw"
                ));
                for record in &tests {
                    let received =
                        &record["outcome"]["measured"]["remote_stats"]["received"]["msgs"];
                    assert_eq!(*received, 60, "{record:#}");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn two_clients_at_once() {
    for device in devices() {
        let server = Server::start();
        let line = format!(
            "{} -i {device} --verify -n 200 -m 4K rc_bw rc_bi_bw",
            server.here()
        );
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for record in json(&line) {
                        assert_verified(&record, &device, 200, 4096);
                    }
                });
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_client_killed_in_the_middle_leaves_the_server_serving() {
    for device in devices() {
        for way in ways(&device) {
            let server = Server::with(&["-v", "--max-clients", "1"]);
            for test in ["rc_bw", "rc_lat", "rc_bi_bw"] {
                let line = format!("{} -i {device} {way} -t 60 {test}", server.here());
                let mut client = rperf()
                    .args(line.split_whitespace())
                    .stdout(Stdio::null())
                    .spawn()
                    .unwrap();
                server.says(&format!("{test} begins"));
                assert!(
                    client.try_wait().unwrap().is_none(),
                    "{line} ended by itself"
                );
                client.kill().unwrap();
                client.wait().unwrap();
                server.says("the client closed the connection");
                let line = format!(
                    "{} -i {device} {way} --verify -n 10 -m 4K {test}",
                    server.here()
                );
                let begin = Instant::now();
                while !run(&line).status.success() {
                    assert!(
                        begin.elapsed() < Duration::from_secs(30),
                        "{line}: the server does not serve on"
                    );
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_server_killed_in_the_middle_ends_the_client_with_an_error() {
    for device in devices() {
        for way in ways(&device) {
            let server = Server::with(&["-v"]);
            let line = format!("{} -i {device} {way} -t 60 rc_bw", server.here());
            let mut command = rperf();
            let client = command
                .args(line.split_whitespace())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            server.says("rc_bw begins");
            drop(server);
            let begin = Instant::now();
            let output = client.wait_with_output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{text}");
            assert!(text.contains("the server closed the connection"), "{text}");
            assert!(begin.elapsed() < Duration::from_secs(20));
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn random_bytes_leave_the_server_serving() {
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
            server.here()
        )) {
            assert_verified(&record, &device, 50, 65536);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_unknown_device_is_answered_with_those_there_are() {
    let names = devices();
    let server = Server::start();
    for option in ["-i", "-li", "-ri"] {
        let text = fails(&format!("{} {option} nosuch0 rc_bw", server.here()), 1);
        assert!(
            text.contains("no RDMA device nosuch0") && names.iter().all(|n| text.contains(n)),
            "{text}"
        );
        assert_eq!(text.contains("the server: "), option == "-ri", "{text}");
        // The server's log says whose device it was.
        server.says(if option == "-ri" {
            ": no RDMA device nosuch0"
        } else {
            "the client: no RDMA device nosuch0"
        });
    }
    let text = fails(&format!("{} -i {}:9 rc_bw", server.here(), names[0]), 1);
    assert!(text.contains("has no port 9"), "{text}");
    server.assert_alive();
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn devices_of_two_kinds_are_told_apart() {
    let names = devices();
    let (direct, iwarp): (Vec<_>, Vec<_>) = names.iter().partition(|n| connects_directly(n));
    let (Some(roce), Some(iwarp)) = (direct.first(), iwarp.first()) else {
        return;
    };
    let text = fails(&format!("-li {roce} -ri {iwarp} rc_bw"), 1);
    assert!(text.contains("cannot talk to each other"), "{text}");
    let text = fails(&format!("-i {iwarp} -cm0 rc_bw"), 1);
    assert!(text.contains("only rdma_cm connects"), "{text}");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messages_beyond_every_limit_are_refused() {
    for device in devices() {
        let text = fails(&format!("-i {device} -m 8G rc_bw"), 1);
        assert!(
            text.contains("message of 8 GiB: the limit is 1 GiB"),
            "{text}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_memlock_limit_of_64_kib_says_how_to_raise_it() {
    for device in devices() {
        // CAP_IPC_LOCK would lift the limit.
        let rperf = env!("CARGO_BIN_EXE_rperf");
        let script = format!(
            "ulimit -l 64; exec setpriv --bounding-set=-ipc_lock {rperf} -i {device} -m 4M rc_bw"
        );
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("memlock"), "{text}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_peer_that_nobody_has_is_unreachable_in_time() {
    devices();
    let begin = Instant::now();
    // TEST-NET-1: nobody answers there.
    let text = fails("-ws 1 192.0.2.1 rc_bw", 1);
    assert!(
        text.contains("cannot reach the server at 192.0.2.1"),
        "{text}"
    );
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_device_and_its_gid_follow_the_address_that_the_server_is_called_by() {
    let server = Server::start();
    for device in devices() {
        let netdev = netdev(&device);
        let all: Vec<String> = ["-4", "-6"]
            .iter()
            .flat_map(|family| addresses(&netdev, family))
            .collect();
        assert!(!all.is_empty(), "{netdev} has no address");
        for address in all {
            let address = address.split('/').next().unwrap();
            for way in ways(&device) {
                for record in json(&format!(
                    "-lp {} {address} {way} --verify -n 5 -m 4K rc_bw",
                    server.port
                )) {
                    assert_verified(&record, &device, 5, 4096);
                    let via = record["outcome"]["measured"]["local"]["address"]
                        .as_str()
                        .unwrap();
                    assert!(via.ends_with(address), "{address}: {record:#}");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_server_that_hangs_ends_the_client_within_the_timeout() {
    for device in devices() {
        for test in ["rc_bw", "rc_lat"] {
            let server = Server::with(&["-v"]);
            let line = format!("{} -i {device} -t 60 -lto 2 {test}", server.here());
            let mut command = rperf();
            let client = command
                .args(line.split_whitespace())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            // Not while they still connect: there the silence has other words.
            server.says(&format!("{test} begins"));
            assert!(
                Command::new("kill")
                    .args(["-STOP", &server.pid().to_string()])
                    .status()
                    .unwrap()
                    .success()
            );
            let begin = Instant::now();
            let output = client.wait_with_output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{text}");
            assert!(
                text.contains("nothing arrived from the peer for 2 s"),
                "{text}"
            );
            assert!(begin.elapsed() < Duration::from_secs(20));
        }
    }
}

/// What the client measured while its server stood still for 600 ms or more.
fn measured_with_a_stop(device: &str) -> Value {
    let server = Server::with(&["-v"]);
    let line = format!("--json {} -i {device} -t 3 rc_bw", server.here());
    let mut command = rperf();
    let client = command
        .args(line.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    server.says("rc_bw begins");
    for (signal, after) in [("-STOP", 1000), ("-CONT", 600)] {
        std::thread::sleep(Duration::from_millis(after));
        assert!(
            Command::new("kill")
                .args([signal, &server.pid().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }
    let output = client.wait_with_output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    document["tests"][0]["outcome"]["measured"].clone()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_stall_in_the_middle_is_named_without_asking() {
    for device in devices() {
        // On a busy machine the stop may come before the first message, or after the last one:
        // again, then.
        let stalled = |m: &Value| {
            m["local_stats"]["stalled"]
                .as_u64()
                .is_some_and(|nanos| nanos >= 400_000_000)
        };
        let m = (0..4)
            .map(|_| measured_with_a_stop(&device))
            .find(stalled)
            .expect("a stall that is told");
        let warnings = m["warnings"].as_array().unwrap();
        assert!(
            warnings.iter().any(|warning| warning["kind"] == "stalled"),
            "{m:#}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn options_that_tune_a_test_leave_its_bytes_as_they_are() {
    for device in devices() {
        let roce = if connects_directly(&device) {
            "--traffic-class 32 --service-level 1 --pkey-index 0"
        } else {
            ""
        };
        for options in [
            "--post-list 1 --cq-moderation 1 --inline 0 -m 32",
            "--post-list 64 --cq-moderation 1000 --inline auto -m 32",
            "--qps 4 --depth 3 -m 3001",
            "--cpu-affinity 0 -cp1 -m 100",
            "-nr 1 -m 4000",
            "--recv-list 7 --depth 8 -m 900",
            roce,
        ] {
            for record in json(
                &format!("-i {device} {options} --verify -n 40 rc_bw rc_rdma_write_bw").replace(
                    "rc_bw",
                    if options.contains("-m") {
                        "rc_bw"
                    } else {
                        "-m 100 rc_bw"
                    },
                ),
            ) {
                let m = &record["outcome"]["measured"];
                let verified = |side: &str| m[side]["verified"].as_u64().unwrap();
                assert!(
                    verified("local_stats") + verified("remote_stats") > 0,
                    "{record:#}"
                );
            }
        }
        let text = fails(&format!("-i {device} --gid-index 77 rc_bw"), 1);
        assert!(
            text.contains("no GID 77") && text.contains("--gid-index"),
            "{text}"
        );
        let text = fails(&format!("-i {device} --cpu-affinity node77 -n 1 rc_bw"), 1);
        assert!(text.contains("no NUMA node 77"), "{text}");
    }
}

/// The sum of a count of both ends.
fn both(record: &Value, path: &str) -> u64 {
    let m = &record["outcome"]["measured"];
    ["local_stats", "remote_stats"]
        .iter()
        .map(|side| m[*side].pointer(path).unwrap().as_u64().unwrap())
        .sum()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn several_threads_a_shared_receive_queue_and_flipped_ends_move_the_same_bytes() {
    for device in devices() {
        let server = Server::start();
        // Each in one of the ways to connect, in turn.
        let options = [
            "--threads 2 --qps 2",
            "--srq --threads 2 --recv-list 4",
            "--flip on",
        ];
        for (options, way) in options.iter().zip(ways(&device).iter().cycle()) {
            let tests = if options.contains("flip") {
                "rc_bw rc_rdma_write_bw"
            } else {
                "rc_bw rc_bi_bw"
            };
            let line = format!(
                "{} -i {device} {way} {options} --verify -n 31 -m 3001 {tests}",
                server.here()
            );
            for record in json(&line) {
                let m = &record["outcome"]["measured"];
                let ways = if record["test"] == "rc_bi_bw" { 2 } else { 1 };
                let (sent, arrived) =
                    (both(&record, "/sent/msgs"), both(&record, "/received/msgs"));
                assert_eq!(sent, 31 * ways, "{line}: {record:#}");
                // iWARP's writes tell nobody.
                assert!(
                    arrived == 31 * ways || arrived == 0 && record["test"] == "rc_rdma_write_bw",
                    "{record:#}"
                );
                assert!(both(&record, "/verified") > 0, "{line}: {record:#}");
                let threads = m["local_stats"]["threads"].as_array().map_or(1, Vec::len);
                assert_eq!(
                    threads,
                    if options.contains("threads") { 2 } else { 1 },
                    "{record:#}"
                );
                if options.contains("flip") {
                    assert_eq!(m["remote_stats"]["sent"]["msgs"], 31, "{record:#}");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn received_data_is_accessed_where_that_is_asked_for() {
    for device in devices() {
        for record in json(&format!(
            "-i {device} -ar1 -n 40 -m 3000 rc_bw rc_lat rc_rdma_read_bw"
        )) {
            assert!(both(&record, "/received/msgs") >= 40, "{record:#}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_group_of_receivers_gets_every_datagram() {
    for device in devices() {
        let line = format!("-i {device} --multicast 3 --verify -n 50 -m 1000 ud_bw");
        if !connects_directly(&device) {
            let text = fails(&line, 1);
            assert!(
                text.contains("needs UD") && text.lines().count() == 1,
                "{text}"
            );
            continue;
        }
        for record in json(&line) {
            let m = &record["outcome"]["measured"];
            let arrived = m["remote_stats"]["received"]["msgs"].as_u64().unwrap();
            let lost = m["remote_stats"]["lost"].as_u64().unwrap();
            assert_eq!(m["local_stats"]["sent"]["msgs"], 50, "{record:#}");
            assert_eq!(arrived + lost, 150, "{record:#}");
            assert!(
                arrived > 75 && m["remote_stats"]["verified"] == arrived * 1000,
                "{record:#}"
            );
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn what_only_infiniband_has_is_refused_in_a_line() {
    for device in devices() {
        for (option, says) in [("-sr 10", "static rate"), ("-sp 1", "path bits")] {
            let text = fails(&format!("-i {device} {option} -n 1 rc_bw"), 1);
            assert!(
                text.contains(says) && text.contains(&device) && text.lines().count() == 1,
                "{text}"
            );
        }
        let text = fails(&format!("-i {device} --pkey-index 7777 -n 1 rc_bw"), 1);
        let says = if connects_directly(&device) {
            "so give --pkey-index less than"
        } else {
            "partition key"
        };
        assert!(text.contains(says) && text.contains(&device), "{text}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_client_that_stands_still_is_given_up_by_a_server_whose_memory_it_uses() {
    for device in devices() {
        let server = Server::with(&["-v"]);
        let line = format!(
            "{} -i {device} -n 1000000000 -m 64 -rto 1 rc_rdma_read_bw",
            server.here()
        );
        let mut client = rperf()
            .args(line.split_whitespace())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        server.says("rc_rdma_read_bw begins");
        assert!(
            Command::new("kill")
                .args(["-STOP", &client.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        server.says("nothing was heard of the peer for 2 s");
        client.kill().unwrap();
        client.wait().unwrap();
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_sweep_is_one_test_for_each_value() {
    for device in devices() {
        let records = json(&format!(
            "-i {device} -n 5 --sizes 2..16 -oo depth:1:2:1 rc_bw"
        ));
        let sizes: Vec<u64> = records
            .iter()
            .map(|r| {
                r["outcome"]["measured"]["spec"]["msg_size"]
                    .as_u64()
                    .unwrap()
            })
            .collect();
        assert_eq!(sizes, [2, 4, 8, 16, 2, 4, 8, 16]);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn intervals_hold_all_that_a_test_counted() {
    for device in devices() {
        let mut records = json(&format!(
            "-i {device} -n 300 -m 1K --interval 20ms rc_bw rc_bi_bw rc_lat"
        ));
        records.extend(json(&format!(
            "-i {device} -n 300 -m 1K --interval 20ms --threads 3 rc_bw rc_bi_bw"
        )));
        for record in records {
            let m = &record["outcome"]["measured"];
            let intervals = m["intervals"].as_array().unwrap();
            let number = |interval: &Value, field: &str| interval[field].as_u64().unwrap();
            let msgs: u64 = intervals
                .iter()
                .map(|interval| number(interval, "msgs"))
                .sum();
            let all = if record["test"] == "rc_bi_bw" {
                600
            } else {
                300
            };
            assert_eq!(msgs, all, "{record:#}");
            assert_eq!(number(&intervals[0], "from"), 0, "{record:#}");
            assert!(
                intervals
                    .windows(2)
                    .all(|pair| pair[0]["to"] == pair[1]["from"]),
                "{record:#}"
            );
            let mut busy = intervals
                .iter()
                .filter(|interval| number(interval, "msgs") > 0);
            let latency = record["test"] == "rc_lat";
            assert!(
                busy.all(|interval| interval["latency_max"].is_u64() == latency),
                "{record:#}"
            );
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn auto_says_in_words_and_in_its_record_what_limits() {
    let names = devices();
    let server = Server::start();
    let line = |device: &str| format!("--auto --tries 5 -t 250ms {} -i {device}", server.here());
    for device in &names {
        let output = run(&format!("{} --json", line(device)));
        let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
        let auto = &document["auto"];
        assert!(
            auto["path"]
                .as_str()
                .is_some_and(|path| path.contains(device)),
            "{auto:#}"
        );
        let made = auto["measurements"].as_u64().expect("a number");
        assert!((3..=5).contains(&made), "{auto:#}");
        assert_eq!(
            document["tests"].as_array().map(Vec::len),
            usize::try_from(made).ok(),
            "{auto:#}"
        );
        let findings = auto["findings"].as_array().expect("findings");
        let goals: Vec<_> = findings
            .iter()
            .map(|finding| finding["goal"].as_str().unwrap_or("?"))
            .collect();
        assert_eq!(goals, ["latency", "rate", "bandwidth"]);
        for finding in findings {
            assert!(
                finding["best"].as_f64() > Some(0.0) && finding["start"].as_f64() > Some(0.0),
                "{finding:#}"
            );
            assert!(
                finding["why"].as_str().is_some_and(|why| why.len() > 20),
                "{finding:#}"
            );
            assert_eq!(
                finding["bound"].is_null(),
                finding["goal"] == "latency",
                "{finding:#}"
            );
        }
    }
    // For people, the same in words.
    let output = run(&line(&names[0]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.starts_with(&names[0]),
        "{text}"
    );
    for goal in [
        "latency, messages of 1 byte",
        "message rate, messages of 64 bytes",
        "bandwidth, messages of 64 KiB",
    ] {
        let after = text
            .split(goal)
            .nth(1)
            .unwrap_or_else(|| panic!("{goal}: {text}"));
        let mut lines = after.lines().skip(1).map(str::trim);
        assert!(
            lines
                .next()
                .is_some_and(|limit| limit.starts_with("limit: ") && limit.len() > 20),
            "{text}"
        );
        assert!(
            lines
                .next()
                .is_some_and(|command| command.starts_with("rperf ")),
            "{text}"
        );
    }
}
