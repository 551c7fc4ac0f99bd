//! Socket tests between two processes on this host. They need no RDMA device.

use super::cli::rejects;
use crate::common::{Server, fails, json, run, spawn};
use serde_json::Value;
use test_support::process::free_tcp_port;
use test_support::temp_dir::TempDir;
use test_support::text::assert_contains;

fn measured(record: &Value) -> &Value {
    &record["outcome"]["measured"]
}

fn count(record: &Value, side: &str, way: &str) -> u64 {
    measured(record)[side][way]["msgs"]
        .as_u64()
        .unwrap_or_else(|| panic!("{record:#}"))
}

#[test]
fn tcp_and_udp_deliver_all_bytes_over_ipv4_and_ipv6() {
    let server = Server::start();
    for host in ["127.0.0.1", "::1"] {
        let line = format!(
            "-lp {} {host} --verify -n 300 -m 8K tcp_bw tcp_lat udp_lat",
            server.port
        );
        for record in json(&line) {
            assert_eq!(
                count(&record, "remote_stats", "received"),
                300,
                "{record:#}"
            );
            assert_eq!(
                measured(&record)["remote_stats"]["verified"],
                300 * 8192,
                "{record:#}"
            );
            let address = measured(&record)["remote"]["address"].as_str().unwrap();
            assert!(address.contains(host), "{address}");
            if record["test"] != "tcp_bw" {
                assert_eq!(measured(&record)["latency"]["samples"], 300, "{record:#}");
            }
        }
    }
}

#[test]
fn a_failed_test_prints_no_heading() {
    let server = Server::start();
    let target = server.target();
    for sizes in ["", "--sizes 1..4"] {
        let line = format!("{target} --keep-going -n 10 {sizes} rc_bw tcp_lat");
        let output = run(&line);
        assert_eq!(output.code(), Some(1), "{line}: {output}");
        assert!(output.stdout.contains("tcp_lat:"), "{line}: {output}");
        assert!(!output.stdout.contains("rc_bw"), "{line}: {output}");
        assert!(output.stderr.contains("rc_bw: "), "{line}: {output}");
    }
}

#[test]
fn udp_reports_sent_and_received_messages() {
    let server = Server::start();
    let record = &json(&format!("{} --verify -n 500 -m 1K udp_bw", server.target()))[0];
    let (sent, received) = (
        count(record, "local_stats", "sent"),
        count(record, "remote_stats", "received"),
    );
    assert!(received > 0 && received <= sent, "{record:#}");
    let lost = measured(record)["remote_stats"]["lost"].as_u64().unwrap();
    assert!(lost <= sent, "{record:#}");
    let text = run(&format!("{} -n 500 udp_bw", server.target())).stdout;
    assert_contains(&text, &["    send_bw ", "    recv_bw "]);
    assert!(
        text.lines()
            .any(|l| l.starts_with("    via ") && l.contains("=  UDP/IPv")),
        "{text}"
    );
}

#[test]
fn one_command_runs_both_ends_in_all_wait_modes() {
    for wait in ["", "-cp0", "-cp1"] {
        for record in json(&format!(
            "{wait} --verify -n 50 -m 1K tcp_bw tcp_lat udp_lat"
        )) {
            assert_eq!(count(&record, "remote_stats", "received"), 50, "{record:#}");
        }
    }
}

#[test]
fn sctp_runs_or_names_the_missing_module() {
    let has_sctp = std::path::Path::new("/proc/net/sctp").exists();
    if has_sctp {
        for record in json("--verify -n 100 -m 40000 sctp_bw sctp_lat") {
            assert_eq!(
                count(&record, "remote_stats", "received"),
                100,
                "{record:#}"
            );
        }
    } else {
        let text = fails("-n 1 sctp_bw", 1);
        assert!(text.contains("modprobe sctp"), "{text}");
    }
}

#[test]
fn the_payload_file_fills_the_messages_of_both_ends() {
    let dir = TempDir::new();
    let path = dir.path().join("pattern");
    // The longest file that is allowed.
    let pattern: Vec<u8> = (0..=250).cycle().take(32_768).collect();
    std::fs::write(&path, pattern).unwrap();
    let server = Server::start();
    for options in [
        "-m 60000 tcp_bw tcp_lat udp_lat",
        "--bidir -m 1K tcp_bw",
        "--rate-limit 1Mb/s -m 1K udp_bw",
        "--rate-limit 100kb/s --flip on -m 10 udp_bw",
    ] {
        let file = path.display();
        let line = format!(
            "{} --payload-file {file} --verify -n 20 {options}",
            server.target()
        );
        for record in json(&line) {
            let m = measured(&record);
            let sum = |field: &str| {
                let ends = ["local_stats", "remote_stats"].map(|end| &m[end]);
                ends.map(|end| end.pointer(field).unwrap().as_u64().unwrap())
                    .iter()
                    .sum::<u64>()
            };
            let size = m["spec"]["msg_size"].as_u64().unwrap();
            assert_eq!(sum("/verified"), sum("/received/msgs") * size, "{record:#}");
            assert!(sum("/received/msgs") >= 20, "{record:#}");
            let payload = m["spec"]["payload"].as_object().unwrap();
            assert_eq!(payload["length"], 32_768, "{payload:?}");
            assert_eq!(payload["file"], file.to_string(), "{payload:?}");
            assert_eq!(payload["sha256"].as_str().unwrap().len(), 64);
            assert_eq!(payload.len(), 3, "{payload:?}");
        }
    }
}

#[test]
fn unsupported_socket_options_are_rejected() {
    let text = fails("nowhere.invalid -m 64K udp_bw", 2);
    assert!(text.contains("the maximum of UDP is 65507 bytes"), "{text}");
    let text = fails("nowhere.invalid -m 4 --verify udp_bw", 2);
    assert!(text.contains("at least 8"), "{text}");
    let text = fails("nowhere.invalid --qps 2 tcp_bw", 2);
    assert!(text.contains("use --parallel"), "{text}");
    let text = fails("nowhere.invalid sdp_bw", 2);
    assert!(text.contains("no longer has SDP"), "{text}");
}

#[test]
fn client_fails_when_its_server_exits() {
    for test in ["tcp_bw", "tcp_lat", "udp_bw", "udp_lat"] {
        let server = Server::with_options(&["-v"]);
        let line = format!("{} -t 60 {test}", server.target());
        let client = std::thread::spawn(move || fails(&line, 1));
        server.wait_for_log("begins");
        drop(server);
        let text = client.join().unwrap();
        assert!(
            text.contains("the server closed the connection"),
            "{test}: {text}"
        );
    }
}

#[test]
fn server_continues_after_a_client_is_killed() {
    let server = Server::with_options(&["-v", "--max-clients", "1"]);
    for test in ["tcp_bw", "tcp_lat", "udp_bw", "udp_lat"] {
        let line = format!("{} -t 60 {test}", server.target());
        let client = spawn(&line);
        server.wait_for_log("begins");
        client.kill();
        server.wait_for_log("the client closed the connection");
        let begin = std::time::Instant::now();
        while !run(&format!("{} conf", server.target())).success() {
            assert!(
                begin.elapsed().as_secs() < 5,
                "{test}: the server does not serve on"
            );
        }
    }
}

#[test]
fn requested_port_and_buffer_sizes_are_used() {
    let server = Server::start();
    let port = free_tcp_port();
    for record in json(&format!(
        "{} -ip {port} -sb 64K -n 100 tcp_bw udp_lat",
        server.target()
    )) {
        let there = measured(&record)["remote"]["address"].as_str().unwrap();
        assert!(there.ends_with(&format!(":{port}")), "{there}");
        assert_eq!(
            measured(&record)["spec"]["sockets"]["server_buffers"],
            65536,
            "{record:#}"
        );
    }
    let text = fails(&format!("{} -sb 2G tcp_bw", server.target()), 2);
    assert!(text.contains("--sock-buf-size"), "{text}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let text = fails(
        &format!(
            "-lp {} 127.0.0.1 -ip {} -n 1 tcp_bw",
            server.port,
            taken.local_addr().unwrap().port()
        ),
        1,
    );
    assert_contains(&text, &["the server: cannot listen over TCP"]);
}

#[test]
fn parallel_streams_share_the_messages() {
    let server = Server::start();
    for (test, bidir, streams) in [
        ("tcp_bw", "", 4),
        ("tcp_bw", "--bidir", 8),
        ("udp_bw", "--bidir", 8),
    ] {
        let line = format!(
            "{} --parallel 4 {bidir} -n 1003 -m 1K {test}",
            server.target()
        );
        let record = &json(&line)[0];
        let stats = |side: &str| &measured(record)[side];
        let threads = stats("local_stats")["threads"].as_array().unwrap();
        assert_eq!(threads.len(), streams, "{record:#}");
        let sent = count(record, "local_stats", "sent") + count(record, "remote_stats", "sent");
        assert_eq!(sent, 1003, "{record:#}");
        let received =
            count(record, "local_stats", "received") + count(record, "remote_stats", "received");
        let lost =
            ["local_stats", "remote_stats"].map(|side| stats(side)["lost"].as_u64().unwrap());
        assert_eq!(received + lost[0] + lost[1], 1003, "{record:#}");
        // In one direction, only the client sends.
        let back = count(record, "remote_stats", "sent");
        assert_eq!(back > 0, !bidir.is_empty(), "{record:#}");
    }
}

#[test]
fn the_bandwidth_of_both_directions_is_a_sum() {
    let record = &json("--bidir -n 2000 tcp_bw")[0];
    let bandwidth = measured(record)["summary"]["bandwidth"].as_f64().unwrap();
    let per_second = |side: &str| {
        let stats = &measured(record)[side];
        let bytes = stats["received"]["bytes"].as_f64().unwrap();
        bytes * 1e9 / stats["nanos"].as_f64().unwrap()
    };
    let sum = per_second("local_stats") + per_second("remote_stats");
    assert!((bandwidth / sum - 1.0).abs() < 0.2, "{bandwidth} {sum}");
    for (direction, receiver) in [("to_server", "remote_stats"), ("to_client", "local_stats")] {
        let ratio = measured(record)["summary"][direction].as_f64().unwrap() / per_second(receiver);
        assert!((ratio - 1.0).abs() < 1e-6, "{record:#}");
    }
    let record = &json("--bidir -t 300ms --interval 100ms tcp_bw")[0];
    let intervals = measured(record)["intervals"].as_array().unwrap();
    assert!(!intervals.is_empty(), "{record:#}");
    for interval in intervals {
        let [both, to_server, to_client] =
            ["bandwidth", "to_server", "to_client"].map(|name| interval[name].as_f64().unwrap());
        assert!((to_server + to_client - both).abs() < 1.0, "{record:#}");
    }
}

#[test]
fn the_rate_of_a_socket_test_is_limited() {
    let server = Server::start();
    for line in ["tcp_bw", "udp_bw", "--parallel 3 tcp_bw"] {
        let line = format!("{} --rate-limit 8Mb/s -m 1K -t 1s {line}", server.target());
        let record = &json(&line)[0];
        let sent = measured(record)["local_stats"]["sent"]["bytes"]
            .as_f64()
            .unwrap();
        assert!((600e3..1.05e6).contains(&sent), "{line}: {sent}");
    }
    // Gaps longer than the timeout are no failure.
    let line = format!(
        "{} --rate-limit 8kb/s -m 2K -to 1 -t 3s tcp_bw",
        server.target()
    );
    let record = &json(&line)[0];
    assert!(count(record, "remote_stats", "received") <= 3, "{record:#}");
    let warnings = &measured(record)["warnings"];
    assert!(
        warnings
            .as_array()
            .unwrap()
            .iter()
            .any(|w| w["kind"] == "rate_limit"),
        "{warnings:#}"
    );
}

#[test]
fn jitter_and_retransmissions_are_reported() {
    let server = Server::start();
    let records = json(&format!(
        "{} --rate-limit 8Mb/s -m 1K -t 500ms udp_bw tcp_bw",
        server.target()
    ));
    let jitter = &measured(&records[0])["remote_stats"]["jitter"];
    let nanos = jitter.as_f64().expect("a jitter");
    assert!((0.0..1e9).contains(&nanos), "{nanos}");
    let retransmitted = &measured(&records[1])["local_stats"]["retransmitted"];
    assert!(retransmitted.is_u64(), "{retransmitted}");
    // A verified datagram has no room for a time.
    let verified = &json(&format!("{} --verify -n 50 -m 1K udp_bw", server.target()))[0];
    assert!(measured(verified)["remote_stats"]["jitter"].is_null());
    let text = run(&format!("{} -n 500 udp_bw", server.target())).stdout;
    assert!(text.contains("rem_jitter"), "{text}");
}

#[test]
fn sockets_have_no_completion_counts() {
    let server = Server::start();
    let target = server.target();
    let record = &json(&format!("{target} -n 10 tcp_bw"))[0];
    for side in ["local_stats", "remote_stats"] {
        let stats = &measured(record)[side];
        assert!(
            stats["nanos"].is_u64() && stats.get("max_cqe").is_none(),
            "{stats}"
        );
    }
    let text = run(&format!("{target} -n 10 -vvs tcp_bw")).stdout;
    assert_contains(&text, &["send_max_cqe", "recv_max_cqe"]);
    for line in text.lines().filter(|line| line.contains("max_cqe")) {
        assert!(line.ends_with("=  -"), "{line}");
    }
}

#[test]
fn streams_need_a_bandwidth_test_over_sockets() {
    let rows = "\
--parallel 2 rc_bw => use --qps or --threads
--bidir tcp_lat => it is for bandwidth tests over sockets
--parallel 0 tcp_bw => expected 1 to 64
--parallel 33 --bidir tcp_bw => expected 1 to 64
--bidir -f1 tcp_bw => remove --flip
--parallel 4 -n 3 tcp_bw => needs at least one
--parallel 4 -ip 65533 tcp_bw => the last port is 65535";
    rejects("nowhere.invalid", rows);
}

#[test]
fn a_client_connects_from_the_address_that_it_is_given() {
    let server = Server::start();
    let line = |bind: &str| format!("-lp {} --bind {bind} 127.0.0.1 -n 10 tcp_bw", server.port);
    let record = &json(&line("127.0.0.2"))[0];
    let address = measured(record)["local"]["address"].as_str().unwrap();
    assert!(address.starts_with("127.0.0.2:"), "{record:#}");
    // No host has an address in TEST-NET-1.
    let text = fails(&format!("-ws 1h {}", line("192.0.2.1")), 1);
    for expected in [
        "cannot connect from 192.0.2.1 (--bind)",
        "help: set --bind to an address of this host",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn samples_are_the_latencies_in_order() {
    let record = &json("--samples -n 200 tcp_lat")[0];
    let samples = measured(record)["latency_samples"].as_array().unwrap();
    assert_eq!(samples.len(), 200, "{record:#}");
    let text = fails("--samples tcp_bw", 2);
    assert_contains(
        &text,
        &["--samples has no effect on tcp_bw: it is for latency tests"],
    );
}
