//! Faults of an adapter, which only a model of one has on request (`nic-model`). `rperf` must end
//! with an error that says what happened, or go on, and its server must go on serving. `ribping`
//! counts pings as lost and names the fault, and its server goes on, too.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use test_support::lab::report_no_device;
use test_support::process::{self, Finished, Process, free_tcp_port};

use crate::common::{Server, devices, rperf};

/// The end of a test whose adapter has the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Client,
    Server,
}

fn with_fault(command: &mut Command, fault: &str) {
    command.env("NIC_MODEL_FAULT", format!("{fault}@100"));
}

/// Runs a test in which the adapter of one end has a fault after 100 packets. Returns the result of
/// the client. A server with a healthy adapter must then serve another client.
fn run_with(fault: &str, end: End, test: &str) -> Finished {
    run_on("mlx5_0", fault, end, &format!("-n 300 {test}"))
}

/// Does the same on a device, with other messages.
fn run_on(device: &str, fault: &str, end: End, test: &str) -> Finished {
    let mut command = rperf();
    command.args(["-lp", "0"]);
    if end == End::Server {
        with_fault(&mut command, fault);
    }
    let server = Server::spawn(&mut command);
    let mut client = rperf();
    // The end with the fault gives up first, because only it knows the state of its port.
    let (local, remote) = if end == End::Client { (2, 20) } else { (20, 2) };
    let line = format!(
        "{} -i {device} --local-timeout {local} --remote-timeout {remote} {test}",
        server.target()
    );
    client.args(line.split_whitespace());
    if end == End::Client {
        with_fault(&mut client, fault);
    }
    let output = process::output(&mut client);
    if end == End::Client {
        server.assert_responds();
    }
    output
}

/// Calls `check` with the result of a test that has the fault at each end. Reports the device.
fn for_each_end(fault: &str, test: &str, check: impl Fn(&Finished, End)) {
    for device in devices() {
        if !device.starts_with("mlx5") {
            report_no_device("only a model of an adapter has this fault");
            continue;
        }
        for end in [End::Client, End::Server] {
            check(&run_with(fault, end, test), end);
        }
    }
}

/// Like [`for_each_end`], for a test that must fail, with the text of its error.
fn for_each_failure(fault: &str, test: &str, check: impl Fn(&str, End)) {
    for_each_end(fault, test, |output, end| {
        assert_eq!(output.code(), Some(1), "{fault} at the {end:?}: {output}");
        check(&output.stderr, end);
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn fatal_error_of_the_device_is_named() {
    for_each_failure("fatal", "rc_lat", |text, end| {
        let known = text.contains("mlx5_0 reported a fatal error") && text.contains("dmesg");
        assert!(known, "{end:?}: {text}");
        assert_eq!(text.contains("the server"), end == End::Server, "{text}");
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn port_that_goes_down_is_named() {
    for_each_failure("link-down", "rc_lat", |text, end| {
        assert!(text.contains("port 1 of mlx5_0 is DOWN"), "{end:?}: {text}");
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn stuck_adapter_ends_the_test_after_the_timeout() {
    for test in ["rc_bw", "rc_rdma_read_bw"] {
        for_each_failure("stuck", test, |text, end| {
            let known = text.contains("nothing arrived") || text.contains("retr");
            assert!(known && text.contains("help:"), "{test}, {end:?}: {text}");
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn test_goes_on_after_a_short_link_flap() {
    for_each_end("link-flap", "rc_lat", |output, end| {
        assert!(output.success(), "{end:?}: {output}");
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn lost_completion_event_does_not_end_the_test() {
    for_each_end("lost-event", "--wait events rc_lat", |output, end| {
        assert!(output.success(), "{end:?}: {output}");
    });
}

/// The requests that the flap loses complete after many later ones.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn late_requests_over_srd_are_verified_and_counted() {
    for device in devices() {
        if !device.starts_with("efa") {
            report_no_device("only EFA has SRD");
            continue;
        }
        for test in ["srd_rdma_read_bw", "srd_bw", "srd_bi_bw"] {
            for end in [End::Client, End::Server] {
                let line = format!("--verify -n 2000 -m 4K --depth 64 {test}");
                let output = run_on(&device, "link-flap", end, &line);
                assert!(output.success(), "{test}, {end:?}: {output}");
            }
        }
    }
}

/// Pings of a run. The fault happens after about 16 of them.
const PINGS: u64 = 26;

fn ribping(port: u16, args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ribping"));
    command.args(["--via", "rdma_cm", "--cm-port", &port.to_string()]);
    command.args(args.split_whitespace());
    command
}

/// Pings a server while the adapter of one end has a fault. Returns the JSON report of the client
/// and its log. A server with a healthy adapter must then answer another client.
fn ping_with(fault: &str, end: End) -> (Value, String) {
    /// Limit of the run, so that attempts to connect again do not add up.
    const LIMIT: u64 = 6;
    let port = free_tcp_port();
    let mut command = ribping(port, "-S");
    if end == End::Server {
        with_fault(&mut command, fault);
    }
    let server = Process::spawn(&mut command);
    server.next_stderr_line("answering connections");
    // Without completion events, each end polls with pauses.
    let timeout = if fault == "lost-event" { 2000 } else { 400 };
    let line = format!("--json -c {PINGS} -i 0.02 -t {timeout} -w {LIMIT} 127.0.0.1");
    let mut client = ribping(port, &line);
    if end == End::Client {
        with_fault(&mut client, fault);
    }
    let started = Instant::now();
    let output = process::output(&mut client);
    let elapsed = started.elapsed();
    println!("{fault} at the {end:?}, {elapsed:?}: {output}");
    // An attempt to connect that has begun before the limit takes at most 3 s.
    assert!(elapsed < Duration::from_secs(LIMIT + 8), "{elapsed:?}");
    if end == End::Client {
        let output = process::output(&mut ribping(port, "-c 2 -i 0.01 -t 5000 127.0.0.1"));
        assert!(output.success(), "{output}");
    }
    let report = serde_json::from_str(&output.stdout).expect("JSON");
    (report, output.stderr)
}

/// Calls `check` with the report and the log of `ribping` for a fault at each end.
fn for_each_ping(fault: &str, check: impl Fn(&Value, &str, End)) {
    for device in devices() {
        if !device.starts_with("mlx5") {
            report_no_device("only a model of an adapter has this fault");
            continue;
        }
        for end in [End::Client, End::Server] {
            let (report, log) = ping_with(fault, end);
            check(&report, &log, end);
        }
    }
}

/// Checks that pings before the fault were answered, and that later ones are lost.
fn assert_lost(report: &Value) {
    let [received, lost] = ["received", "lost"].map(|name| report[name].as_u64());
    assert!(received > Some(0) && lost > Some(0), "{report}");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn ribping_goes_on_after_a_short_link_flap() {
    for_each_ping("link-flap", |report, _, _| {
        let [received, lost] = ["received", "lost"].map(|name| report[name].as_u64());
        assert_eq!(
            received.zip(lost).map(|(a, b)| a + b),
            Some(PINGS),
            "{report}"
        );
        assert!(lost < Some(5), "{report}");
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn ribping_loses_no_ping_with_a_lost_event() {
    for_each_ping("lost-event", |report, _, _| {
        assert_eq!(report["received"], PINGS, "{report}");
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn ribping_names_the_fault_of_its_own_adapter() {
    for (fault, text) in [
        ("link-down", "port 1 of mlx5_0 is DOWN"),
        ("fatal", "the adapter mlx5_0 does not work"),
    ] {
        for_each_ping(fault, |report, log, end| {
            assert_lost(report);
            assert_eq!(log.contains(text), end == End::Client, "{end:?}: {log}");
            let error = report["last_error"].as_str();
            assert_eq!(error.is_some(), end == End::Client, "{report}");
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn ribping_counts_the_pings_of_a_stuck_adapter_as_lost() {
    for_each_ping("stuck", |report, _, _| assert_lost(report));
}
