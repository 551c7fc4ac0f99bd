//! Removal of a device that an idle server has used. The servers hold no device open, so
//! `rdma link delete` ends.

use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use test_support::process::{self, Process, free_tcp_port, wait_until};

use crate::common::second_device::SecondDevice;
use crate::common::{Server, devices, ipv4_address, json};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until a removal ends, which must be successful.
fn wait_for_removal(mut removal: Child, server: &str) {
    let mut status = None;
    let has_ended = wait_until(TIMEOUT, || {
        status = removal.try_wait().unwrap();
        status.is_some()
    });
    assert!(has_ended, "the removal waits for {server}");
    assert!(status.unwrap().success());
}

/// Returns the verbs devices that a process has open.
fn open_devices(pid: u32) -> Vec<String> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    files
        .filter_map(|file| fs::read_link(file.unwrap().path()).ok())
        .map(|target| target.display().to_string())
        .filter(|target| target.contains("uverbs"))
        .collect()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn idle_rperf_server_lets_a_device_be_removed() {
    for (number, device) in devices().iter().enumerate() {
        let second = SecondDevice::new(device, number);
        let server = Server::start();
        let line = format!("-lp {} {} -cm1 -n 10 rc_lat", server.port, second.ip);
        let record = &json(&line)[0];
        assert!(record.to_string().contains(&second.name), "{record}");
        // Otherwise the test would pass without a restart.
        assert_ne!(open_devices(server.id()), Vec::<String>::new());
        wait_for_removal(second.delete(), "rperf");
        server.wait_for_log("restarting");
        server.wait_for_log("serving on");
        assert_eq!(open_devices(server.id()), Vec::<String>::new());
        // The restarted server has the port, and serves tests on the other devices.
        let address = ipv4_address(device);
        json(&format!("-lp {} {address} -n 10 rc_lat", server.port));
        server.signal("TERM");
        assert_eq!(server.wait(), Some(0));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn idle_ribping_server_lets_a_device_be_removed() {
    let ribping = env!("CARGO_BIN_EXE_ribping");
    for (number, device) in devices().iter().enumerate() {
        let second = SecondDevice::new(device, number);
        let port = free_tcp_port().to_string();
        let server =
            Process::spawn(Command::new(ribping).args(["-S", "--via", "cm", "--cm-port", &port]));
        server.next_stderr_line("answering connections");
        let ping = |ip: &str| {
            let output = process::output(Command::new(ribping).args([
                "--via",
                "cm",
                "--cm-port",
                &port,
                "-c",
                "3",
                ip,
            ]));
            assert!(output.success(), "{ip}: {output}");
        };
        ping(&second.ip);
        assert_ne!(open_devices(server.id()), Vec::<String>::new());
        wait_for_removal(second.delete(), "ribping");
        server.next_stderr_line("restarting");
        server.next_stderr_line("answering connections");
        ping(&ipv4_address(device));
        server.interrupt();
        let output = server.wait_timeout(TIMEOUT);
        assert!(output.success(), "{output}");
    }
}
