//! Helpers for tests of `rperf`.
#![allow(dead_code, reason = "each test program uses only some of these")]

pub(crate) mod namespace;
pub(crate) mod second_device;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use test_support::lab;
pub(crate) use test_support::process::Finished;
use test_support::process::{self, Process};

pub(crate) fn rperf() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rperf"));
    command.stdin(Stdio::null());
    command
}

/// Returns the output and the exit code of `ribinfo --root`.
pub(crate) fn ribinfo(root: &Path, args: &[&str]) -> (String, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ribinfo"));
    let output = process::output(command.args(args).arg("--root").arg(root));
    (output.text(), output.code().expect("an exit code"))
}

/// Runs `rperf` with arguments that are split at white space.
///
/// A server of qperf also listens on Soft-iWARP, where rdma_cm selects a port without a look at the
/// TCP connections of this host. If one of them has the port, the test is run again.
pub(crate) fn run(line: &str) -> Finished {
    const ATTEMPTS: usize = 5;
    let run = || process::output(rperf().args(line.split_whitespace()));
    let listens = |output: &Finished| !output.stderr.contains("(qperf): rdma_listen failed");
    let mut outputs = (1..ATTEMPTS).map(|_| run());
    outputs.find(listens).unwrap_or_else(run)
}

/// Starts `rperf` with arguments that are split at white space.
pub(crate) fn spawn(line: &str) -> Process {
    Process::spawn(rperf().args(line.split_whitespace()))
}

/// Runs `rperf`, which must exit with this code, and returns its error message.
pub(crate) fn fails(line: &str, code: i32) -> String {
    let output = run(line);
    let text = output.stderr.clone();
    assert_eq!(output.code(), Some(code), "{line}: {text}");
    assert!(text.starts_with("rperf: "), "{line}: {text}");
    assert!(!text.contains("panicked"), "{line}: {text}");
    text
}

/// Runs `rperf --json`, which must succeed, and returns the records of its tests.
pub(crate) fn json(line: &str) -> Vec<Value> {
    let output = run(&format!("--json {line}"));
    assert!(output.success(), "{line}: {output}");
    let records = records(&output.stdout);
    assert!(records.iter().all(|record| record["schema"] == 1));
    records
}

/// Returns the lines of `rperf --json` that are records of tests.
pub(crate) fn records(text: &str) -> Vec<Value> {
    let lines = text.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    lines.filter(|line| line["type"] == "test").collect()
}

/// An `rperf` server. It is killed when it is dropped.
pub(crate) struct Server {
    process: Process,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with_options(&[])
    }

    /// Starts a server on a free port with these additional options.
    pub(crate) fn with_options(options: &[&str]) -> Self {
        Self::spawn(rperf().args(["-lp", "0"]).args(options))
    }

    /// Starts a command that is an `rperf` server. The first line of its log has the port.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let process = Process::spawn(command);
        let first = process.next_stderr_line("");
        let port = first.rsplit(':').next().and_then(|port| port.parse().ok());
        Self {
            process,
            port: port.unwrap_or_else(|| panic!("no port: {first}")),
        }
    }

    /// Returns the arguments with which a client connects to this server.
    pub(crate) fn target(&self) -> String {
        format!("-lp {} localhost", self.port)
    }

    /// Waits for the next line of the server's log that contains `text`, and returns it.
    pub(crate) fn wait_for_log(&self, text: &str) -> String {
        self.process.next_stderr_line(text)
    }

    /// Returns the process ID of the server.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal, named as for `kill(1)`.
    pub(crate) fn signal(&self, signal: &str) {
        process::send_signal(self.process.id(), signal);
    }

    /// Waits until the server exits and returns its exit code.
    pub(crate) fn wait(self) -> Option<i32> {
        self.process.wait().code()
    }

    /// Waits until the server exits and returns its output.
    pub(crate) fn wait_for_exit(self) -> Finished {
        self.process.wait()
    }

    /// Checks that the server answers a client.
    pub(crate) fn assert_responds(&self) {
        let output = run(&format!("{} conf", self.target()));
        assert!(output.success(), "{output}");
    }
}

/// Starts the server of `qperf` and returns it with its port.
pub(crate) fn qperf_server() -> (Process, u16) {
    let port = process::free_tcp_port();
    let mut command = Command::new("qperf");
    command
        .args(["-lp", &port.to_string()])
        .stdin(Stdio::null());
    let server = Process::spawn(&mut command).wait_for_tcp_listener(port);
    (server, port)
}

/// Runs the client of `qperf` with arguments that are split at white space.
pub(crate) fn qperf(line: &str) -> Finished {
    process::output(process::command(&format!("qperf {line}")).stdin(Stdio::null()))
}

/// Returns the names of the devices to test on and reports each of them.
pub(crate) fn devices() -> Vec<String> {
    lab::reported_device_names()
}

/// Returns `true` if queue pairs of the device can be connected without rdma_cm.
pub(crate) fn connects_directly(device: &str) -> bool {
    !lab::is_iwarp(device)
}

/// Returns the IPv4 address of the device: qperf uses rdma_cm only over IPv4.
pub(crate) fn ipv4_address(device: &str) -> String {
    let addresses = lab::ip_addresses(&lab::netdev(device));
    let address = addresses.iter().find(|ip| ip.is_ipv4());
    address.expect("an IPv4 address").to_string()
}

/// Returns the text of a document, whose path is relative to the root of the repository.
pub(crate) fn document(path: &str) -> String {
    let path = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the commands in code blocks and code spans of a document, without shell comments.
pub(crate) fn commands_of(document: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut in_block = false;
    for line in document.replace("\\\n", " ").lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block || line.starts_with("    ") {
            let line = line.trim_start().trim_start_matches("$ ");
            all.extend(line.split([';', '&']).map(str::to_owned));
        } else {
            all.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    all.iter()
        .map(|line| {
            line.split('#')
                .next()
                .unwrap_or_default()
                .trim()
                .trim_end_matches('\'')
                .to_owned()
        })
        .collect()
}
