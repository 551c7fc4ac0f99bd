//! `rperf monitor` and `ribinfo export` on each device.

mod common;

use std::process::Command;

use common::{Server, devices, rperf};
use serde_json::Value;
use test_support::process::{self, Process, send_signal};

fn next_line(monitor: &Process, text: &str) -> Value {
    let line = monitor.next_stdout_line(text);
    serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn paths_of_devices_are_probed_and_lost_ones_named() {
    for device in devices() {
        let server = Server::start();
        let port = server.port;
        let line = format!(
            "monitor --json-lines --interval 50ms --timeout 2s --devices {device} localhost:{port}"
        );
        let monitor = Process::spawn(rperf().args(line.split_whitespace()));
        let up = next_line(&monitor, "\"to\":\"up\"");
        let name = format!("{device}/1");
        assert_eq!(
            (&up["source"], &up["device"]),
            (&name.clone().into(), &name.into())
        );
        // The server answers again after a restart, although its queue pair is another one.
        server.signal("KILL");
        server.wait();
        next_line(&monitor, "\"to\":\"lost\"");
        let server = Server::spawn(rperf().args(["-lp", &port.to_string()]));
        next_line(&monitor, "\"to\":\"up\"");
        // All flow labels are answered.
        std::thread::sleep(std::time::Duration::from_secs(2));
        send_signal(monitor.id(), "INT");
        let output = monitor.wait();
        assert_eq!(output.code(), Some(0), "{output}");
        let last = output.stdout.lines().last().unwrap();
        println!("{device}: {last}");
        let line: Value = serde_json::from_str(last).unwrap();
        assert_eq!(line["state"], "up", "{line}");
        for times in ["/network_ns/min", "/host_avg_ns", "/peer_avg_ns"] {
            assert!(line.pointer(times).unwrap().as_u64() > Some(0), "{line}");
        }
        server.assert_responds();
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn objects_of_processes_are_exported_and_listed() {
    for device in devices() {
        let server = Server::start();
        let line = format!("-i {device} -t 60 localhost rc_bw -lp {}", server.port);
        let client = Process::spawn(rperf().args(line.split_whitespace()));
        let has_objects = || {
            let text = process::run(Command::new(env!("CARGO_BIN_EXE_ribinfo")).arg("export"));
            let line = |metric: &str| {
                let start = format!("{metric}{{device=\"{device}\",process=\"rperf\"");
                text.lines().any(|line| line.starts_with(&start))
            };
            line("rdma_process_objects") && line("rdma_process_registered_bytes")
        };
        assert!(process::wait_until(process::TIMEOUT, has_objects));
        let mut command = Command::new(env!("CARGO_BIN_EXE_ribinfo"));
        let top = Process::spawn(command.args(["top", "--interval", "200ms"]));
        top.next_stdout_line(&format!("{device}/1"));
        let owner = top.next_stdout_line(" rperf ");
        assert!(
            owner.contains(&device) || owner.contains("rperf"),
            "{owner}"
        );
        top.interrupt();
        assert_eq!(top.wait().code(), Some(0));
        client.kill();
        drop(server);
    }
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
        let check = format!("ribinfo_check_level{{subject=\"port\",object=\"{device}/1\"}} 0.0");
        assert!(output.stdout.contains(&check), "{output}");
    }
    assert!(output.stdout.contains("counter=\"sent_pkts\""), "{output}");
}
