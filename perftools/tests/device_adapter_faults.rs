//! Faults of an adapter, which only a model of one has on request (`nic-model`). `rperf` must end
//! with an error that says what happened, or go on, and its server must go on serving.

mod common;

use std::process::Command;

use common::{Server, devices, rperf};
use test_support::lab::report_no_device;
use test_support::process::{self, Finished};

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
        "{} -i mlx5_0 -n 300 --local-timeout {local} --remote-timeout {remote} {test}",
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
