//! The alert rules and the dashboard name only metrics that exist.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::common::{Server, rperf};
use serde_json::Value;
use test_support::process::{self, Process};

const RULES: &str = include_str!("../../prometheus/rules.yml");
const DASHBOARD: &str = include_str!("../../prometheus/dashboard.json");

/// Returns the names of this project's metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_name(c));
    let own = words.filter(|word| {
        ["rdma_", "ribinfo_", "rperf_"]
            .iter()
            .any(|prefix| word.starts_with(prefix))
    });
    own.map(str::to_owned).collect()
}

/// Returns the names of the samples in an exposition.
fn samples(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let name = |line: &str| line.split(['{', ' ']).next().unwrap_or_default().to_owned();
    lines.map(name).collect()
}

/// Returns all metrics of `ribinfo export`, on hosts that have all kinds of counters.
fn exported() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for host in ["mlx4", "rxe"] {
        let root = format!("{}/tests/fixtures/hosts/{host}", env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_ribinfo"));
        command.args(["export", "--expect", "rate=100", "--root", &root]);
        names.extend(samples(&process::run(&mut command)));
    }
    names
}

/// Returns all metrics of `rperf monitor`.
fn monitored() -> BTreeSet<String> {
    let server = Server::start();
    let line = format!(
        "monitor --json --interval 50ms --listen 127.0.0.1:0 localhost:{}",
        server.port
    );
    let monitor = Process::spawn(rperf().args(line.split_whitespace()));
    let url = monitor.next_stderr_line("metrics on http://");
    let address = url.split("http://").nth(1).unwrap();
    let address = address.strip_suffix("/metrics").unwrap().to_owned();
    monitor.next_stdout_line("\"to\":\"up\"");
    let mut text = String::new();
    let has_times = |text: &str| text.contains("rperf_probe_network_latest_seconds{");
    let found = process::wait_until(process::TIMEOUT, || {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        text.clear();
        stream.read_to_string(&mut text).unwrap();
        has_times(&text)
    });
    assert!(found, "{text}");
    let body = text.split_once("\r\n\r\n").unwrap().1;
    samples(body)
}

#[test]
fn rules_and_dashboard_name_only_metrics_that_exist() {
    let mut exist = exported();
    exist.extend(monitored());
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let expressions: Vec<&str> = targets
        .flatten()
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(expressions.len() > 15, "{expressions:?}");
    let rules = RULES.lines().filter(|line| !line.contains("summary:"));
    let rules: String = rules.collect::<Vec<_>>().join("\n");
    for (what, text) in [("dashboard", expressions.join("\n")), ("rules", rules)] {
        let used = names(&text);
        let unknown: Vec<&String> = used.difference(&exist).collect();
        assert!(used.len() > 8, "{what}: {used:?}");
        assert!(unknown.is_empty(), "{what}: {unknown:?} not in {exist:?}");
    }
    // Each panel has a place of its own.
    let mut places = BTreeSet::new();
    for panel in panels {
        assert!(places.insert(panel["gridPos"].to_string()), "{panel}");
    }
}
