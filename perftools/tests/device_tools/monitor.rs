//! `rperf monitor` and `ribinfo export` on each device.

use std::process::Command;

use serde_json::Value;
use test_support::process::{self, Process, send_signal};

use crate::common::{Server, devices, rperf};

/// Waits until the path of each device is in this state, and returns the lines that say so.
fn wait_for_state(monitor: &Process, state: &str, devices: &[String]) -> Vec<Value> {
    let mut lines: Vec<Value> = Vec::new();
    while lines.len() < devices.len() {
        let line = monitor.next_stdout_line(&format!("\"to\":\"{state}\""));
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        if lines.iter().all(|other| other["device"] != line["device"]) {
            lines.push(line);
        }
    }
    lines
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn paths_of_devices_are_probed_and_lost_ones_named() {
    let devices = devices();
    let server = Server::start();
    let port = server.port;
    let line = format!(
        "monitor --json --interval 50ms --timeout 2s --devices {} localhost:{port}",
        devices.join(",")
    );
    let monitor = Process::spawn(rperf().args(line.split_whitespace()));
    let up = wait_for_state(&monitor, "up", &devices);
    for name in &devices {
        let port = format!("{name}/1");
        let is_named = |line: &Value| line["source"] == port && line["device"] == port;
        assert!(up.iter().any(is_named), "{name}: {up:?}");
    }
    // The server answers again after a restart, although its queue pairs are others.
    server.signal("KILL");
    server.wait();
    wait_for_state(&monitor, "lost", &devices);
    let server = Server::spawn(rperf().args(["-lp", &port.to_string()]));
    wait_for_state(&monitor, "up", &devices);
    // All flow labels are answered.
    std::thread::sleep(std::time::Duration::from_secs(2));
    send_signal(monitor.id(), "INT");
    let output = monitor.wait();
    assert_eq!(output.code(), Some(0), "{output}");
    let lines = output.stdout.lines().rev().take(devices.len());
    let lines: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for name in &devices {
        let line = lines
            .iter()
            .find(|line| line["device"] == format!("{name}/1"));
        let line = line.unwrap_or_else(|| panic!("{name}: {output}"));
        println!("{name}: {line}");
        assert_eq!(line["state"], "up", "{line}");
        for times in ["/network_ns/min", "/host_avg_ns", "/peer_avg_ns"] {
            assert!(line.pointer(times).unwrap().as_u64() > Some(0), "{line}");
        }
    }
    server.assert_responds();
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn objects_of_processes_are_exported() {
    let devices = devices();
    let server = Server::with_options(&["-v"]);
    let clients = devices.iter().map(|device| {
        // At a low rate, the tests leave the processors to `ribinfo`.
        let options = "-t 600 -m 1K --rate-limit 50KB/s";
        let line = format!("-i {device} {options} {} rc_bw", server.target());
        Process::spawn(rperf().args(line.split_whitespace()))
    });
    let clients: Vec<_> = clients.collect();
    for _ in &devices {
        server.wait_for_log("rc_bw begins");
    }
    let text = process::run(Command::new(env!("CARGO_BIN_EXE_ribinfo")).arg("export"));
    for device in &devices {
        for metric in ["rdma_process_objects", "rdma_process_registered_bytes"] {
            let start = format!("{metric}{{device=\"{device}\",process=\"rperf\"");
            let is_exported = text.lines().any(|line| line.starts_with(&start));
            assert!(is_exported, "{start}: {text}");
        }
    }
    clients.into_iter().for_each(Process::kill);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn export_has_the_state_of_each_device() {
    let output = process::output(Command::new(env!("CARGO_BIN_EXE_ribinfo")).arg("export"));
    assert!(output.success(), "{output}");
    for device in devices() {
        for metric in ["rdma_port_up", "rdma_port_rate_bytes_per_second"] {
            let labels = format!("{{device=\"{device}\",port=\"1\"}}");
            let line = format!("{metric}{labels} ");
            assert!(output.stdout.contains(&line), "{line}: {output}");
        }
        let check = format!("ribinfo_check_level{{check=\"port\",object=\"{device}/1\"}} 0.0");
        assert!(output.stdout.contains(&check), "{output}");
    }
    assert!(output.stdout.contains("counter=\"sent_pkts\""), "{output}");
}
