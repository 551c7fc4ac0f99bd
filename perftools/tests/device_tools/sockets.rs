//! Socket tests that need kernel modules (SCTP, RDS), which the kernel of the lab has.

use std::process::Command;
use std::thread;

use test_support::lab::{ip_addresses, netdev};
use test_support::process;
use test_support::text::assert_contains;

use crate::common::{self, Server, devices, json, qperf, qperf_server, run};

/// Returns an IPv4 and an IPv6 address of the device's interface.
fn both_families(device: &str) -> Vec<String> {
    let all = ip_addresses(&netdev(device));
    let ipv4 = all.iter().find(|ip| ip.is_ipv4());
    let ipv6 = all.iter().find(|ip| ip.is_ipv6());
    let both = ipv4.into_iter().chain(ipv6);
    both.map(ToString::to_string).collect()
}

/// Loads a kernel module, if it exists.
fn load(module: &str) {
    process::output(Command::new("modprobe").arg(module));
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn sctp_delivers_all_bytes_over_ipv4_and_ipv6() {
    load("sctp");
    assert!(
        std::path::Path::new("/proc/net/sctp").exists(),
        "the lab's kernel has SCTP"
    );
    let server = Server::start();
    // Sockets behave the same on the interfaces of all devices, so one device is enough.
    let hosts = both_families(&devices()[0]);
    assert_eq!(hosts.len(), 2, "{hosts:?}");
    for host in hosts {
        for record in json(&format!(
            "-lp {} {host} --verify -to 30 -n 20 -m 1K sctp_bw sctp_lat",
            server.port
        )) {
            let m = &record["outcome"]["measured"];
            assert_eq!(m["remote_stats"]["received"]["msgs"], 20, "{record:#}");
            assert_eq!(m["remote_stats"]["verified"], 20 * 1024, "{record:#}");
            assert!(
                m["local"]["address"].as_str().unwrap().contains(&host),
                "{record:#}"
            );
        }
    }
}

/// Returns the number of acknowledgments that were sent after the delay of 200 ms.
fn late_acknowledgements() -> u64 {
    let all = std::fs::read_to_string("/proc/net/sctp/snmp").expect("SCTP");
    let line = all
        .lines()
        .find(|line| line.starts_with("SctpDelaySackExpireds"))
        .expect("the counter");
    line.split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("a number")
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn large_sctp_messages_cause_no_delayed_acknowledgments() {
    load("sctp");
    devices();
    let server = Server::start();
    let (before, n) = (late_acknowledgements(), 6);
    let record = &json(&format!(
        "{} -to 30 -n {n} -m 300000 sctp_lat",
        server.target()
    ))[0];
    assert_eq!(
        record["outcome"]["measured"]["latency"]["samples"], n,
        "{record:#}"
    );
    // With default buffer sizes, each message causes three delayed acknowledgments.
    let late = late_acknowledgements() - before;
    assert!(late < n, "{late}: {record:#}");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rds_runs_or_names_the_missing_module() {
    load("rds_tcp");
    let server = Server::start();
    for device in devices() {
        let host = &both_families(&device)[0];
        let output = run(&format!(
            "-lp {} {host} --verify -to 30 -n 20 rds_bw rds_lat",
            server.port
        ));
        let text = output.stdout.clone();
        if output.success() {
            assert_contains(&text, &["RDS/IPv4", "latency"]);
        } else {
            let error = output.stderr.clone();
            // The kernel has RDS, but no transport for it.
            let expected =
                error.contains("modprobe rds") || error.contains("RDS needs the address");
            assert!(error.contains("over RDS") && expected, "{error}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn sctp_runs_with_a_qperf_client_and_a_qperf_server() {
    load("sctp");
    devices();
    let server = Server::start();
    let words = format!("-lp {} 127.0.0.1 -to 30 -t 1 sctp_lat", server.port);
    let output = qperf(&words);
    let text = output.stdout.clone();
    assert!(output.success() && text.contains("latency "), "{text}");

    let (_qperf_server, port) = qperf_server();
    let output = run(&format!("-lp {port} 127.0.0.1 -to 30 -t 1 sctp_lat"));
    assert!(
        output.success() && output.stdout.contains("latency "),
        "{output}"
    );
}

/// Loss on the loopback interface, which the packets of sockets and of Soft-iWARP to the own host
/// pass. It ends when this is dropped.
struct LossyLoopback;

impl LossyLoopback {
    fn new() -> Self {
        process::run_line("tc qdisc replace dev lo root netem limit 100000 loss 2%");
        Self
    }
}

impl Drop for LossyLoopback {
    fn drop(&mut self) {
        let _ = Command::new("tc")
            .args(["qdisc", "del", "dev", "lo", "root"])
            .output();
    }
}

/// Returns the number of TCP segments that the host has retransmitted.
fn retransmitted_by_host() -> u64 {
    let snmp = std::fs::read_to_string("/proc/self/net/snmp").expect("counters");
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut fields = names.split_whitespace().zip(values.split_whitespace());
    let (_, value) = fields.find(|(name, _)| *name == "RetransSegs").unwrap();
    value.parse().expect("a number")
}

/// Runs a test and returns the segments that both ends retransmitted.
fn retransmitted(line: &str) -> u64 {
    let record = &json(line)[0];
    let end = |end: &str| {
        let count = &record["outcome"]["measured"][end]["retransmitted"];
        count
            .as_u64()
            .unwrap_or_else(|| panic!("{line}: {record:#}"))
    };
    end("local_stats") + end("remote_stats")
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn retransmissions_are_those_of_the_connections_of_a_test() {
    for device in devices() {
        let address = common::ipv4_address(&device);
        let mut tests = vec!["tcp_bw".to_owned(), "--parallel 3 tcp_bw".to_owned()];
        if !common::connects_directly(&device) {
            tests.push(format!("-i {device} rc_bw"));
        }
        for test in tests {
            let servers = [Server::start(), Server::start()];
            let [first, second] = servers.each_ref().map(|server| {
                let port = server.port;
                format!("-lp {port} -to 30 -n 400 -m 64K {address} {test}")
            });
            let loopback = LossyLoopback::new();
            let before = retransmitted_by_host();
            let (first, second) = thread::scope(|scope| {
                let second = scope.spawn(|| retransmitted(&second));
                (retransmitted(&first), second.join().expect("a test"))
            });
            let host = retransmitted_by_host() - before;
            drop(loopback);
            println!("{device}, {test}: {first} and {second} of {host} segments");
            assert!(first > 0 && second > 0, "{test}: {first}, {second}");
            // Counts of the host would contain those of the other test.
            assert!(first + second <= host, "{test}: {first}, {second}, {host}");
        }
        let record = &json(&format!("-i {device} -n 10 rc_bw"))[0];
        let count = &record["outcome"]["measured"]["local_stats"]["retransmitted"];
        assert_eq!(count.is_null(), common::connects_directly(&device));
    }
}
