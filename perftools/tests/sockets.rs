//! Tests over sockets, between two processes of this machine: they need no RDMA.

mod common;

use common::{Server, fails, json, run};
use serde_json::Value;

fn measured(record: &Value) -> &Value {
    &record["outcome"]["measured"]
}

fn count(record: &Value, side: &str, way: &str) -> u64 {
    measured(record)[side][way]["msgs"]
        .as_u64()
        .unwrap_or_else(|| panic!("{record:#}"))
}

#[test]
fn tcp_and_udp_run_over_both_families_and_every_byte_is_checked() {
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
fn udp_shows_what_was_sent_and_what_arrived() {
    let server = Server::start();
    let record = &json(&format!("{} --verify -t 300ms -m 1K udp_bw", server.here()))[0];
    let (sent, received) = (
        count(record, "local_stats", "sent"),
        count(record, "remote_stats", "received"),
    );
    assert!(received > 0 && received <= sent, "{record:#}");
    let lost = measured(record)["remote_stats"]["lost"].as_u64().unwrap();
    assert!(lost <= sent, "{record:#}");
    let text =
        String::from_utf8(run(&format!("{} -t 300ms udp_bw", server.here())).stdout).unwrap();
    assert!(
        text.contains("    send_bw  =  ") && text.contains("    recv_bw  =  "),
        "{text}"
    );
    assert!(
        text.lines()
            .any(|l| l.starts_with("    via ") && l.contains("=  UDP/IPv")),
        "{text}"
    );
}

#[test]
fn both_ends_in_one_command_and_every_way_to_wait() {
    for wait in ["", "-cp0", "-cp1"] {
        for record in json(&format!(
            "{wait} --verify -n 50 -m 1K tcp_bw tcp_lat udp_lat"
        )) {
            assert_eq!(count(&record, "remote_stats", "received"), 50, "{record:#}");
        }
    }
}

#[test]
fn sctp_runs_or_says_what_the_kernel_lacks() {
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
fn what_a_datagram_cannot_hold_is_refused() {
    let text = fails("nowhere.invalid -m 64K udp_bw", 1);
    assert!(text.contains("UDP carries at most 65507 bytes"), "{text}");
    let text = fails("nowhere.invalid -m 4 --verify udp_bw", 1);
    assert!(text.contains("at least 8"), "{text}");
    let text = fails("nowhere.invalid --qps 2 tcp_bw", 1);
    assert!(text.contains("not for tests over sockets"), "{text}");
    let text = fails("nowhere.invalid sdp_bw", 2);
    assert!(text.contains("gone from Linux"), "{text}");
}

#[test]
fn a_server_that_ends_in_the_middle_ends_the_client_with_an_error() {
    for test in ["tcp_bw", "tcp_lat", "udp_bw", "udp_lat"] {
        let server = Server::with(&["-v"]);
        let line = format!("{} -t 60 {test}", server.here());
        let client = std::thread::spawn(move || fails(&line, 1));
        server.says("begins");
        drop(server);
        let text = client.join().unwrap();
        assert!(
            text.contains("the server closed the connection"),
            "{test}: {text}"
        );
    }
}

#[test]
fn a_client_that_ends_in_the_middle_leaves_the_server_serving() {
    let server = Server::with(&["-v", "--max-clients", "1"]);
    for test in ["tcp_bw", "tcp_lat", "udp_bw", "udp_lat"] {
        let line = format!("{} -t 60 {test}", server.here());
        let mut client = common::rperf()
            .args(line.split_whitespace())
            .spawn()
            .unwrap();
        server.says("begins");
        client.kill().unwrap();
        client.wait().unwrap();
        server.says("the client closed the connection");
        let begin = std::time::Instant::now();
        while !run(&format!("{} conf", server.here())).status.success() {
            assert!(
                begin.elapsed().as_secs() < 5,
                "{test}: the server does not serve on"
            );
        }
    }
}

#[test]
fn the_port_and_the_buffers_are_those_asked_for() {
    let server = Server::start();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    for record in json(&format!(
        "{} -ip {port} -sb 64K -n 100 tcp_bw udp_lat",
        server.here()
    )) {
        let there = measured(&record)["remote"]["address"].as_str().unwrap();
        assert!(there.ends_with(&format!(":{port}")), "{there}");
        assert_eq!(
            measured(&record)["spec"]["sockets"]["server_buffers"],
            65536,
            "{record:#}"
        );
    }
    let text = fails(&format!("{} -sb 2G tcp_bw", server.here()), 1);
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
    assert!(
        text.contains("the server: cannot listen over TCP"),
        "{text}"
    );
}
