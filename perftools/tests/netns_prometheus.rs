//! Prometheus scrapes `rperf monitor` and `ribinfo export`, and an alert fires when a path is cut.
//! The other host is a network namespace.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::namespace::{self, shell};
use common::{Server, rperf};
use serde_json::Value;
use test_support::process::{self, Process};
use test_support::temp_dir::TempDir;

/// Longest time until Prometheus has noticed a change on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Returns the body of a page.
fn get(address: &str, path: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else {
        return String::new();
    };
    let _ = write!(stream, "GET {path} HTTP/1.0\r\n\r\n");
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    let body = text.split_once("\r\n\r\n");
    body.map_or_else(String::new, |(_, body)| body.to_owned())
}

/// Returns the state of an alert of Prometheus for a path to `target`.
fn alert(name: &str, target: &str) -> Option<String> {
    let reply: Value = serde_json::from_str(&get(PROMETHEUS, "/api/v1/alerts")).ok()?;
    let alerts = reply["data"]["alerts"].as_array()?;
    let found = alerts.iter().find(|alert| {
        alert["labels"]["alertname"] == name && alert["labels"]["target"] == target
    })?;
    Some(found["state"].as_str()?.to_owned())
}

/// Returns the result of a query.
fn query(expression: &str) -> Option<Vec<Value>> {
    let reply = get(PROMETHEUS, &format!("/api/v1/query?query={expression}"));
    let reply: Value = serde_json::from_str(&reply).ok()?;
    reply["data"]["result"].as_array().cloned()
}

fn wait_for(what: &str, condition: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    assert!(
        process::wait_until(TIMEOUT, condition),
        "{what}: not within {TIMEOUT:?}; {}",
        get(PROMETHEUS, "/api/v1/targets?state=active")
    );
    begin.elapsed()
}

/// Runs `promtool check metrics`, which prints nothing if there is nothing to report.
fn check_metrics(text: &str) {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool of the package prometheus");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && report.is_empty(),
        "{report}{text}"
    );
}

const MONITOR: &str = "127.0.0.1:9743";
const EXPORT: &str = "127.0.0.1:9742";
const PROMETHEUS: &str = "127.0.0.1:9090";
const TARGET: &str = "10.77.1.2:7000";

#[test]
#[ignore = "needs prometheus: run by ci/test tools"]
fn prometheus_scrapes_both_and_an_alert_fires() {
    if !namespace::is_inside("prometheus_scrapes_both_and_an_alert_fires") {
        return;
    }
    shell(
        "mount -t tmpfs none /run; ip link set lo up
        ip netns add h1
        ip link add v1 type veth peer name eth0 netns h1
        ip addr add 10.77.1.1/30 dev v1; ip link set v1 up
        ip -n h1 addr add 10.77.1.2/30 dev eth0
        ip -n h1 link set eth0 up; ip -n h1 link set lo up",
    );
    let mut command = Command::new("ip");
    command.args(["netns", "exec", "h1"]);
    command.arg(rperf().get_program()).args(["-lp", "7000"]);
    let _server = Server::spawn(&mut command);
    let line = format!("monitor --interval 100ms --listen {MONITOR} {TARGET}");
    let monitor = Process::spawn(rperf().args(line.split_whitespace()));
    monitor.next_stderr_line("metrics on");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ribinfo"));
    command.args(["export", "--listen", EXPORT]);
    let export = Process::spawn(&mut command);
    export.next_stderr_line("metrics on");

    let directory = TempDir::new();
    let path = directory.path().display();
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/prometheus/rules.yml");
    let config = directory.write(
        "prometheus.yml",
        format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ['{rules}']
scrape_configs:
  - job_name: rdma
    static_configs: [{{targets: ['{MONITOR}', '{EXPORT}']}}]
"
        ),
    );
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={path}/data"))
        .arg(format!("--web.listen-address={PROMETHEUS}"));
    let _prometheus = Process::spawn(&mut command);

    wait_for("both are scraped", || {
        query("up==1").is_some_and(|up| up.len() == 2)
    });
    wait_for("the path is up", || {
        query("rperf_path_up==1").is_some_and(|up| up.len() == 1)
    });
    wait_for("the checks have ended", || {
        query("ribinfo_check_findings").is_some_and(|levels| levels.len() == 4)
    });
    check_metrics(&get(MONITOR, "/metrics"));
    check_metrics(&get(EXPORT, "/metrics"));
    assert_eq!(alert("RdmaPathLost", TARGET), None);

    shell("ip link set v1 down");
    let fired = wait_for("the alert fires", || {
        alert("RdmaPathLost", TARGET).as_deref() == Some("firing")
    });
    monitor.next_stderr_line("lost: no answers");
    shell("ip link set v1 up");
    let resolved = wait_for("the alert ends", || alert("RdmaPathLost", TARGET).is_none());
    println!("the alert fired after {fired:?} and ended after {resolved:?}");
}

#[test]
#[ignore = "needs prometheus: run by ci/test tools"]
fn promtool_accepts_the_rules_and_all_metrics() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/prometheus");
    for (check, file) in [
        (["check", "rules"], "rules.yml"),
        (["test", "rules"], "rules_test.yml"),
    ] {
        let mut command = Command::new("promtool");
        command.args(check).arg(file).current_dir(directory);
        let output = process::output(&mut command);
        assert!(output.success(), "{output}");
    }
    for host in ["mlx4", "ipoib", "rxe", "siw"] {
        let root = format!("{}/tests/fixtures/hosts/{host}", env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_ribinfo"));
        command.args(["export", "--expect", "rate=100", "--root", &root]);
        check_metrics(&process::run(&mut command));
    }
}
