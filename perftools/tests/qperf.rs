//! Beside the real qperf, in both roles: what needs no RDMA runs on this machine.

mod common;

use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Server, fails, json, run};

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
                begin.elapsed() < Duration::from_secs(10),
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

/// Runs qperf's client against a server of rperf.
fn qperf(server: &Server, words: &str) -> Output {
    let mut command = Command::new("qperf");
    command
        .args(["-lp", &server.port.to_string(), "127.0.0.1"])
        .args(words.split_whitespace());
    command.stdin(Stdio::null()).output().unwrap()
}

fn prints(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// The figure on a line of qperf's output, in base units.
fn figure(text: &str, name: &str) -> f64 {
    let line = text
        .lines()
        .find(|l| l.trim_start().starts_with(&format!("{name} ")));
    let line = line.unwrap_or_else(|| panic!("no {name}: {text}"));
    line.split('=')
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn a_qperf_client_measures_against_an_rperf_server() {
    let server = Server::with(&["-v"]);
    let text = prints(&qperf(
        &server,
        "-uu -t 1 -sb 128K -rca 0 tcp_bw tcp_lat udp_bw udp_lat",
    ));
    for name in ["bw", "latency", "send_bw", "recv_bw"] {
        assert!(figure(&text, name) > 0.0, "{text}");
    }
    for test in [
        "tcp_bw begins",
        "tcp_lat begins",
        "udp_bw begins",
        "udp_lat begins",
    ] {
        server.says(test);
    }
}

#[test]
fn a_qperf_client_gets_the_servers_processor_times_too() {
    let server = Server::start();
    let text = prints(&qperf(&server, "-vvt -vvs -uu -t 1 -m 16K tcp_bw"));
    let nanos = figure(&text, "recv_real_time");
    assert!((0.9e9..5e9).contains(&nanos), "{text}");
    assert!(
        figure(&text, "recv_msgs") > 0.0 && figure(&text, "recv_cpus_used") > 0.0,
        "{text}"
    );
}

#[test]
fn a_qperf_client_reads_the_configuration_and_ends_the_server() {
    let server = Server::start();
    let text = prints(&qperf(&server, "conf"));
    assert!(
        text.contains("rem_qperf") && text.contains("0.4.11 (rperf "),
        "{text}"
    );
    prints(&qperf(&server, "quit"));
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_qperf_client_is_told_what_is_wrong_by_urgent_data() {
    let server = Server::with(&["--max-size", "1M", "--max-time", "10"]);
    for (words, says) in [
        (
            "-m 2M tcp_bw",
            "server: message of 2 MiB: the server allows 1 MiB",
        ),
        (
            "-t 60 tcp_bw",
            "server: a test of 60 s: the server allows 10 s",
        ),
        ("-m 70000 udp_bw", "UDP carries at most 65507 bytes"),
    ] {
        // qperf prints only what has arrived when the urgent byte's signal reaches it, which may be
        // nothing: of its own server's errors it loses as many (7 of 40 here).
        let mut heard = Vec::new();
        while !heard.iter().any(|text: &String| text.contains(says)) {
            std::thread::sleep(Duration::from_millis(5 * heard.len() as u64 % 50));
            let output = qperf(&server, words);
            heard.push(String::from_utf8_lossy(&output.stderr).into_owned());
            assert!(
                !output.status.success() && heard.len() < 200,
                "{words}: {heard:?}"
            );
        }
    }
    server.assert_alive();
}

#[test]
fn an_rperf_client_measures_against_a_qperf_server_by_itself_or_told_so() {
    let server = Qperf::start();
    for line in [
        "127.0.0.1 -t 1 tcp_bw tcp_lat udp_bw udp_lat",
        "::1 --qperf -t 1 -sb 128K -rca 0 tcp_bw udp_lat",
    ] {
        for record in json(&format!("-lp {} {line}", server.port)) {
            let m = &record["outcome"]["measured"];
            let lat = record["test"].as_str().unwrap().ends_with("lat");
            let figure = &m["summary"][if lat { "latency" } else { "bandwidth" }];
            assert!(figure.as_f64().unwrap() > 0.0, "{record:#}");
            assert!(
                m["remote_stats"]["received"]["msgs"].as_u64().unwrap() > 0,
                "{record:#}"
            );
        }
    }
}

#[test]
fn an_rperf_client_reads_qperfs_configuration_and_ends_it() {
    let mut server = Qperf::start();
    let text = prints(&run(&format!("-lp {} localhost conf", server.port)));
    assert!(
        text.contains("rem_rperf  =  qperf 0.4.11") || text.contains("qperf 0.4.11"),
        "{text}"
    );
    prints(&run(&format!("-lp {} localhost quit", server.port)));
    let begin = Instant::now();
    while server.child.try_wait().unwrap().is_none() {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "qperf did not end"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_qperf_servers_error_is_read_whole() {
    let server = Qperf::start();
    // A port that is taken: by the control connection's own listener.
    let line = format!("-lp {} localhost --qperf -t 1 sctp_bw", server.port);
    if std::path::Path::new("/proc/net/sctp").exists() {
        return;
    }
    let text = fails(&line, 1);
    assert!(
        text.contains("the server (qperf): unable to make SCTP socket"),
        "{text}"
    );
}

#[test]
fn what_qperf_cannot_do_is_refused_with_a_reason() {
    let server = Qperf::start();
    let text = fails(&format!("-lp {} localhost --verify tcp_bw", server.port), 1);
    assert!(
        text.contains("--verify") && text.contains("qperf"),
        "{text}"
    );
    let text = fails(&format!("-lp {} localhost -rca 0-1 tcp_bw", server.port), 1);
    assert!(text.contains("a qperf server runs on one"), "{text}");
    let text = fails(&format!("-lp {} localhost -n 10 tcp_bw", server.port), 1);
    assert!(text.contains("by time only"), "{text}");
}
