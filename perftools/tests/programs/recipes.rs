//! The recipes in `recipes/`, each with a server on this host and tests over sockets.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Server, json, run};
use test_support::process::{self, Finished};

/// Limits that every host keeps, and limits that none keeps.
const EASY: &str = "--min-bw 1kb/s tcp_bw --max-lat 10s tcp_lat";
const HARD: &str = "--min-bw 900Tb/s tcp_bw --max-lat 10s tcp_lat";

/// Runs a command with the program under test as `rperf`.
fn with_rperf(command: &mut Command) -> Finished {
    let programs = Path::new(env!("CARGO_BIN_EXE_rperf")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env("PATH", format!("{}:{path}", programs.display()))
        .stdin(Stdio::null());
    process::output(command)
}

fn recipe(name: &str) -> Command {
    Command::new(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("recipes")
            .join(name),
    )
}

/// Returns arguments for the port of a server, followed by `args`.
fn on_port(port: u16, args: &str) -> String {
    format!("-lp {port} -ws 300ms -n 500 {args}")
}

#[test]
fn results_outside_a_limit_exit_with_3_and_one_line() {
    let server = Server::start();
    let target = server.target();
    assert!(run(&format!("{target} -n 500 {EASY}")).success());
    let output = run(&format!("{target} -n 500 --min-bw 900Tb/s tcp_bw"));
    assert_eq!(output.code(), Some(3), "{output}");
    let line = "rperf: tcp_bw: bandwidth of ";
    assert!(
        output.stderr.starts_with(line) && output.stderr.contains("below --min-bw 900 Tb/sec"),
        "{output}"
    );
    assert_eq!(output.stderr.lines().count(), 1, "{output}");
    // The result is printed all the same.
    assert!(output.stdout.starts_with("tcp_bw:"), "{output}");
    // The following tests still run, and a failed test counts more than a slow one.
    let output = run(&format!("{target} -n 500 {HARD}"));
    assert_eq!(output.code(), Some(3), "{output}");
    assert!(output.stdout.contains("tcp_lat:"), "{output}");
    let failing = format!("{target} -n 500 --keep-going --min-bw 900Tb/s tcp_bw -i nosuch0 rc_bw");
    let output = run(&failing);
    assert_eq!(output.code(), Some(1), "{output}");
    assert!(
        output
            .stderr
            .contains("1 of 2 tests failed, 1 of 2 results exceed a limit"),
        "{output}"
    );
    assert!(!output.stdout.contains("rc_bw"), "{output}");
}

#[test]
fn limits_apply_to_latency_percentiles_and_losses() {
    let server = Server::start();
    let target = server.target();
    for (line, expected) in [
        ("--max-lat 1ns tcp_lat", "above --max-lat 1 ns"),
        ("--max-p99 1ns tcp_lat", "above --max-p99 1 ns"),
    ] {
        let output = run(&format!("{target} -n 500 {line}"));
        assert_eq!(output.code(), Some(3), "{line}: {output}");
        assert!(output.stderr.contains(expected), "{line}: {output}");
    }
    assert!(run(&format!("{target} -n 100 --max-lost 0 tcp_bw")).success());
    // The rate of the loopback interface is unknown.
    let output = run(&format!("{target} -n 500 --min-bw 90% tcp_bw"));
    assert_eq!(output.code(), Some(1), "{output}");
    assert!(output.stderr.contains("specify a rate"), "{output}");
    // Every test checks its own limits, and JSON names those that were exceeded.
    let tests = json(&format!("{target} -n 500 --min-bw 1kb/s tcp_bw"));
    assert!(tests[0]["outcome"]["measured"]["exceeded"].is_null());
}

#[test]
fn the_slurm_prolog_drains_only_slow_nodes() {
    let server = Server::start();
    let prolog = |port: u16, args: &str| {
        let mut command = recipe("slurm-prolog.sh");
        command.env("RPERF_SERVER", "localhost");
        with_rperf(command.env("RPERF_ARGS", on_port(port, args)))
    };
    assert_eq!(prolog(server.port, EASY).code(), Some(0));
    let slow = prolog(server.port, HARD);
    assert_eq!(slow.code(), Some(1), "{slow}");
    assert!(
        slow.stdout
            .starts_with("print network too slow: rperf: tcp_bw: bandwidth of"),
        "{slow}"
    );
    let down = prolog(process::free_tcp_port(), EASY);
    assert_eq!(down.code(), Some(0), "{down}");
    assert!(
        down.stdout.starts_with("print network not checked"),
        "{down}"
    );
}

#[test]
fn the_kubernetes_probe_is_ready_within_the_limits() {
    let manifest = include_str!("../../recipes/kubernetes-readiness.yaml");
    let (_, probe) = manifest.split_once("          command:\n").unwrap();
    let words: Vec<&str> = probe
        .lines()
        .map_while(|line| line.trim_start().strip_prefix("- "))
        .collect();
    let server = Server::start();
    let ready = |args: &str| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("RPERF_SERVER", "localhost");
        with_rperf(command.env("RPERF_ARGS", on_port(server.port, args)))
    };
    assert!(ready(EASY).success());
    assert_eq!(ready(HARD).code(), Some(3));
}

#[test]
fn the_nagios_plugin_maps_the_statuses() {
    let server = Server::start();
    let plugin = |args: &str| {
        let line = format!("-lp {} -ws 300ms localhost {args}", server.port);
        with_rperf(recipe("nagios-plugin.sh").args(line.split_whitespace()))
    };
    let ok = plugin("-n 500 --min-bw 1kb/s tcp_bw");
    assert_eq!(ok.code(), Some(0), "{ok}");
    assert!(
        ok.stdout.starts_with("RPERF OK - bw ") && ok.stdout.contains(" bytes/sec | bw="),
        "{ok}"
    );
    let critical = plugin("-n 500 --max-lat 1ns tcp_lat");
    assert_eq!(critical.code(), Some(2), "{critical}");
    assert!(
        critical
            .stdout
            .starts_with("RPERF CRITICAL - tcp_lat: mean latency of")
            && critical.stdout.contains(" | latency="),
        "{critical}"
    );
    let unknown = plugin("-i nosuch0 rc_bw");
    assert_eq!(unknown.code(), Some(3), "{unknown}");
    assert!(
        unknown.stdout.starts_with("RPERF UNKNOWN - rc_bw: "),
        "{unknown}"
    );
    assert_eq!(unknown.stdout.lines().count(), 1, "{unknown}");
}
