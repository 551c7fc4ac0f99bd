//! `rperf` against `qperf` over RDMA. All connections use rdma_cm (`-cm1`), which `qperf` needs on
//! RoCE.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread::sleep;
use std::time::Duration;

use rdmacm::Listener;
use test_support::process::Process;

use crate::common::{
    Server, connects_directly, devices, fails, ipv4_address, json, qperf, qperf_server, rperf, run,
};

/// All RC tests of `qperf`.
const TESTS: [&str; 12] = [
    "rc_bw",
    "rc_lat",
    "rc_rdma_write_bw",
    "rc_rdma_write_lat",
    "rc_rdma_read_lat",
    "rc_rdma_read_bw",
    "ver_rc_fetch_add",
    "ver_rc_compare_swap",
    "rc_compare_swap_mr",
    "rc_fetch_add_mr",
    "rc_rdma_write_poll_lat",
    "rc_bi_bw",
];

/// Returns the tests for a role: every other one, because each takes seconds under emulation. If
/// `RDMA_LAB_FULL` is set, returns all tests.
fn tests(role: usize) -> impl Iterator<Item = &'static str> {
    let full = std::env::var_os("RDMA_LAB_FULL").is_some();
    TESTS
        .into_iter()
        .enumerate()
        .filter(move |(n, _)| full || n % 2 == role)
        .map(|(_, test)| test)
}

/// Asserts that the first result of a test is not 0.
fn assert_measured(text: &str, test: &str) {
    let figure = text
        .lines()
        .find_map(|l| l.split_once('='))
        .unwrap_or_else(|| panic!("{test}: {text}"));
    let number = figure.1.split_whitespace().next().unwrap().replace(',', "");
    assert!(number.parse::<f64>().unwrap() > 0.0, "{test}: {text}");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rc_tests_run_with_a_qperf_client() {
    for device in devices().iter().filter(|d| connects_directly(d)) {
        let (server, address) = (Server::start(), ipv4_address(device));
        for test in tests(0) {
            let words = format!("-lp {} {address} -cm1 -to 30 -t 1 {test}", server.port);
            let output = qperf(&words);
            let text = output.stdout.clone();
            assert!(output.success(), "{text} {}", output.stderr);
            assert_measured(&text, test);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rc_tests_run_with_a_qperf_server() {
    for device in devices().iter().filter(|d| connects_directly(d)) {
        let ((_server, port), address) = (qperf_server(), ipv4_address(device));
        for test in tests(1) {
            let output = run(&format!("-lp {port} --qperf -to 30 -t 1 {address} {test}"));
            let text = output.stdout.clone();
            assert!(output.success(), "{text} {}", output.stderr);
            assert_measured(&text, test);
            assert!(text.contains("via") && text.contains("(rdma_cm)"), "{text}");
        }
    }
}

/// A qperf server sends the port of rdma_cm before it listens there.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rejected_connections_are_tried_again() {
    const CM_PORT: u16 = 7297;
    for device in devices().iter().filter(|d| connects_directly(d)) {
        let address = ipv4_address(device);
        let control = TcpListener::bind((address.as_str(), 0)).expect("a port");
        let port = control.local_addr().expect("an address").port();
        let line = format!("-lp {port} --qperf -to 30 -t 1 {address} rc_bw");
        let client = Process::spawn(rperf().args(line.split_whitespace()));
        let (mut stream, _) = control.accept().expect("a client");
        stream.read_exact(&mut [0; 200]).expect("a request");
        stream
            .write_all(&u32::from(CM_PORT).to_le_bytes())
            .expect("a client");
        // The client is rejected several times.
        sleep(Duration::from_millis(400));
        let address = SocketAddr::new(address.parse().expect("an address"), CM_PORT);
        let listener = Listener::bind(address, 1).expect("a listener");
        let request = listener.next_request(Some(Duration::from_secs(20)));
        assert!(request.expect("a listener").is_some(), "{device}");
        drop(stream);
        assert_eq!(client.wait().code(), Some(1));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn message_count_ends_a_test_with_either_peer() {
    for device in devices().iter().filter(|d| connects_directly(d)) {
        let (server, address) = (Server::start(), ipv4_address(device));
        let (_qperf_server, port) = qperf_server();
        let record = &json(&format!(
            "-lp {port} --qperf -to 30 -n 200 -m 1K {address} rc_bw"
        ))[0];
        let stats = &record["outcome"]["measured"];
        assert_eq!(stats["remote_stats"]["received"]["msgs"], 200, "{record:#}");
        assert_eq!(stats["local_stats"]["sent"]["msgs"], 200, "{record:#}");
        let words = format!(
            "-lp {} {address} -cm1 -to 30 -n 200 -m 1K -vvs -un rc_bw",
            server.port
        );
        let output = qperf(&words);
        let text = output.stdout.clone();
        assert!(
            text.lines()
                .any(|l| l.contains("rem_recv_msgs") && l.trim_end().ends_with("200")),
            "{text}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn unsupported_tests_of_qperf_are_one_line_errors() {
    let server = Server::start();
    let (_qperf_server, port) = qperf_server();
    for device in devices() {
        let address = ipv4_address(&device);
        for (words, expected) in [
            ("ud_bw", "connects UD (unreliable datagrams) by LIDs only"),
            (
                "uc_lat",
                "connects UC (unreliable connections) by LIDs only",
            ),
            ("-cm0 rc_bw", "set --use-cm (-cm1)"),
            ("-n 5 rc_lat", "by time only"),
        ] {
            let text = fails(
                &format!("-lp {port} --qperf -to 30 -t 1 {address} {words}"),
                1,
            );
            assert!(text.contains(expected), "{words}: {text}");
        }
        if !connects_directly(&device) {
            // The server of `qperf` fails on iWARP, and `rperf` prints its error message.
            let text = fails(
                &format!("-lp {port} --qperf -to 60 -t 1 {address} rc_bw"),
                1,
            );
            assert!(text.contains("the server (qperf): "), "{text}");
        }
    }
    let text = fails(&format!("-lp {port} --qperf -t 1 ::1 rc_bw"), 1);
    assert!(text.contains("over IPv4 only"), "{text}");
    server.assert_responds();
}
