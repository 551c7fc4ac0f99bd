//! Tests over the network interfaces of RDMA devices: what other hosts' kernels may lack (SCTP,
//! RDS) is there in the lab, or said so.

mod common;

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Server, addresses, devices, json, netdev, run};

/// The first address of each family on a device's interface.
fn both_families(device: &str) -> Vec<String> {
    let first = |family| {
        addresses(&netdev(device), family)
            .first()
            .map(|a| a.split('/').next().unwrap().to_owned())
    };
    ["-4", "-6"].into_iter().filter_map(first).collect()
}

/// Loads a module, if there is one.
fn load(module: &str) {
    let _ = Command::new("modprobe")
        .arg(module)
        .stderr(Stdio::null())
        .status();
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn sctp_runs_over_both_families_and_every_byte_is_checked() {
    load("sctp");
    assert!(
        std::path::Path::new("/proc/net/sctp").exists(),
        "the lab's kernel has SCTP"
    );
    let server = Server::start();
    // Both devices' interfaces are alike to sockets.
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

/// How often an acknowledgement was sent only because it had waited long enough (200 ms).
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
fn messages_larger_than_the_systems_buffers_do_not_wait_for_late_acknowledgements() {
    load("sctp");
    devices();
    let server = Server::start();
    let (before, n) = (late_acknowledgements(), 6);
    let record = &json(&format!(
        "{} -to 30 -n {n} -m 300000 sctp_lat",
        server.here()
    ))[0];
    assert_eq!(
        record["outcome"]["measured"]["latency"]["samples"], n,
        "{record:#}"
    );
    // With the system's buffers there are three in each message.
    let late = late_acknowledgements() - before;
    assert!(late < n, "{late}: {record:#}");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rds_runs_or_says_what_the_kernel_lacks() {
    load("rds_tcp");
    let server = Server::start();
    for device in devices() {
        let host = &both_families(&device)[0];
        let output = run(&format!(
            "-lp {} {host} --verify -to 30 -n 20 rds_bw rds_lat",
            server.port
        ));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            assert!(
                text.contains("RDS/IPv4") && text.contains("latency"),
                "{text}"
            );
        } else {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            // A kernel with RDS, but none of what carries it.
            let says = error.contains("modprobe rds") || error.contains("RDS wants an address");
            assert!(error.contains("over RDS") && says, "{error}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn sctp_runs_beside_the_real_qperf_in_both_roles() {
    load("sctp");
    devices();
    let server = Server::start();
    let words = format!("-lp {} 127.0.0.1 -to 30 -t 1 sctp_lat", server.port);
    let output = Command::new("qperf")
        .args(words.split(' '))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("latency  =  "),
        "{text}"
    );

    let port = std::net::TcpListener::bind("[::]:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut qperf = Command::new("qperf")
        .args(["-lp", &port.to_string()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "qperf does not listen"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = run(&format!("-lp {port} 127.0.0.1 -to 30 -t 1 sctp_lat"));
    let _ = qperf.kill();
    let _ = qperf.wait();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("latency  =  "),
        "{text}"
    );
}
