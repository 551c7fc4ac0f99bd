//! Beside the real qperf over RDMA, connected by rdma_cm (`-cm1`), the only way that qperf has to
//! RoCE; both roles.

mod common;

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Server, address, connects_directly, devices, fails, run};

/// All of qperf's tests over RC.
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

/// Those that a role runs: every other one, as each takes seconds where everything is emulated; all
/// with RDMA_LAB_FULL set.
fn tests(role: usize) -> impl Iterator<Item = &'static str> {
    let full = std::env::var_os("RDMA_LAB_FULL").is_some();
    TESTS
        .into_iter()
        .enumerate()
        .filter(move |(n, _)| full || n % 2 == role)
        .map(|(_, test)| test)
}

/// qperf's own server; killed when dropped.
struct Qperf {
    child: Child,
    port: u16,
}

impl Qperf {
    fn start() -> Self {
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("[::]:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let mut command = Command::new("qperf");
        command
            .args(["-lp", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = command
            .spawn()
            .expect("qperf is installed (Debian's package of that name)");
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "qperf does not listen"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, port }
    }
}

impl Drop for Qperf {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first figure of a test's output, which is not zero.
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
        let (server, address) = (Server::start(), address(device));
        for test in tests(0) {
            let words = format!("-lp {} {address} -cm1 -to 30 -t 1 {test}", server.port);
            let output = Command::new("qperf")
                .args(words.split(' '))
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                output.status.success(),
                "{text} {}",
                String::from_utf8_lossy(&output.stderr)
            );
            assert_measured(&text, test);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rc_tests_run_with_a_qperf_server() {
    for device in devices().iter().filter(|d| connects_directly(d)) {
        let (server, address) = (Qperf::start(), address(device));
        for test in tests(1) {
            let output = run(&format!(
                "-lp {} --qperf -to 30 -t 1 {address} {test}",
                server.port
            ));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                output.status.success(),
                "{text} {}",
                String::from_utf8_lossy(&output.stderr)
            );
            assert_measured(&text, test);
            assert!(text.contains("via") && text.contains("(rdma_cm)"), "{text}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_test_by_count_ends_by_count_with_either_peer() {
    for device in devices().iter().filter(|d| connects_directly(d)) {
        let (server, qperf, address) = (Server::start(), Qperf::start(), address(device));
        let record = &common::json(&format!(
            "-lp {} --qperf -to 30 -n 200 -m 1K {address} rc_bw",
            qperf.port
        ))[0];
        let stats = &record["outcome"]["measured"];
        assert_eq!(stats["remote_stats"]["received"]["msgs"], 200, "{record:#}");
        assert_eq!(stats["local_stats"]["sent"]["msgs"], 200, "{record:#}");
        let words = format!(
            "-lp {} {address} -cm1 -to 30 -n 200 -m 1K -vvs -un rc_bw",
            server.port
        );
        let output = Command::new("qperf")
            .args(words.split(' '))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.lines()
                .any(|l| l.contains("rem_recv_msgs") && l.trim_end().ends_with("200")),
            "{text}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn what_qperf_cannot_do_here_is_said_in_one_line_each_way() {
    let (server, qperf) = (Server::start(), Qperf::start());
    for device in devices() {
        let address = address(&device);
        for (words, says) in [
            ("ud_bw", "connects UD (unreliable datagrams) by LIDs only"),
            (
                "uc_lat",
                "connects UC (unreliable connections) by LIDs only",
            ),
            ("-cm0 rc_bw", "give --use-cm (-cm1)"),
            ("-n 5 rc_lat", "ends by time only"),
        ] {
            let text = fails(
                &format!("-lp {} --qperf -to 30 -t 1 {address} {words}", qperf.port),
                1,
            );
            assert!(text.contains(says), "{words}: {text}");
        }
        if !connects_directly(&device) {
            // qperf's own server fails on iWARP, and its words arrive here.
            let text = fails(
                &format!("-lp {} --qperf -to 60 -t 1 {address} rc_bw", qperf.port),
                1,
            );
            assert!(text.contains("the server (qperf): "), "{text}");
        }
    }
    let text = fails(&format!("-lp {} --qperf -t 1 ::1 rc_bw", qperf.port), 1);
    assert!(text.contains("over IPv4 only"), "{text}");
    server.assert_alive();
}
