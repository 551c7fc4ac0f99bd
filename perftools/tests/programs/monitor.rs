//! `rperf monitor` over UDP, without RDMA devices.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Server, fails, rperf, run};
use serde_json::{Value, json};
use session::protocol::hello;
use test_support::process::{Process, free_tcp_port, send_signal};
use test_support::temp_dir::TempDir;

/// Starts a monitor with options that make it notice a lost path within a second on a busy host.
fn monitor(hosts: &str, options: &str) -> Process {
    let line = format!("monitor --json --interval 50ms --timeout 700ms {options} {hosts}");
    Process::spawn(rperf().args(line.split_whitespace()))
}

fn next_line(monitor: &Process, text: &str) -> Value {
    let line = monitor.next_stdout_line(text);
    serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

/// Answers all requests for reflectors with this reply. Returns the port.
fn hostile_server(reply: &Value) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let reply = reply.to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read_exact(&mut [0; hello::REQUEST_LEN]);
            let _ = stream.write_all(&hello::encode(hello::PROTOCOL));
            let mut request = [0; 4];
            let _ = stream.read_exact(&mut request);
            let mut request = vec![0; u32::from_be_bytes(request) as usize];
            let _ = stream.read_exact(&mut request);
            let len = u32::try_from(reply.len()).unwrap().to_be_bytes();
            let _ = stream.write_all(&[&len, reply.as_bytes()].concat());
        }
    });
    port
}

#[test]
fn a_server_decides_neither_where_probes_go_nor_how_many() {
    let third_party = UdpSocket::bind("127.0.0.9:0").unwrap();
    let address = third_party.local_addr().unwrap().to_string();
    let reflectors = |count| {
        let reflector =
            |n| json!({ "name": format!("d{n}"), "key": 1, "address": { "udp": address } });
        json!({ "reflectors": (0..count).map(reflector).collect::<Vec<_>>() })
    };
    for (count, message) in [
        (1, "has the address 127.0.0.9, which is not one of the host"),
        (65, "65 reflectors: the limit is 64"),
        (60_000, "exceeds the limit of 524288 bytes"),
    ] {
        let port = hostile_server(&reflectors(count));
        let monitor = monitor(&format!("127.0.0.1:{port}"), "");
        let line = next_line(&monitor, "");
        assert_eq!(line["reachable"], false, "{line}");
        assert!(line["error"].as_str().unwrap().contains(message), "{line}");
        send_signal(monitor.id(), "TERM");
        monitor.wait();
    }
    third_party.set_nonblocking(true).unwrap();
    third_party.recv(&mut [0; 300]).unwrap_err();
    // A network that the user allows.
    let port = hostile_server(&reflectors(1));
    let networks = "--reflector-networks 127.0.0.8/31";
    let monitor = monitor(&format!("127.0.0.1:{port}"), networks);
    third_party.set_nonblocking(false).unwrap();
    assert_eq!(third_party.recv(&mut [0; 300]).unwrap(), 256);
    send_signal(monitor.id(), "TERM");
    monitor.wait();
}

#[test]
fn a_host_without_a_path_is_an_error_at_the_end() {
    for (line, expected, status) in [
        ("-t 100ms nowhere.invalid", "no path to nowhere.invalid", 1),
        ("--hosts-file /dev/null", "the list of hosts is empty", 2),
        ("--hosts-file /dev/zero", "longer than 64 MiB", 1),
        ("localhost rc_bw", "run `rperf HOST rc_bw`", 2),
    ] {
        let text = fails(&format!("monitor {line}"), status);
        assert!(text.contains(expected), "{line}: {text}");
    }
}

#[test]
fn lost_servers_are_named_and_found_again() {
    let (first, second) = (Server::start(), Server::start());
    let hosts = format!("localhost:{},localhost:{}", first.port, second.port);
    let monitor = monitor(&hosts, "");
    let (mut reachable, mut up) = (0, 0);
    while reachable < 2 || up < 2 {
        let line = next_line(&monitor, "");
        reachable += u8::from(line["reachable"] == true);
        up += u8::from(line["to"] == "up");
    }
    let port = second.port;
    second.signal("KILL");
    second.wait();
    let lost = next_line(&monitor, "\"to\":\"lost\"");
    assert_eq!(lost["target"], format!("localhost:{port}"), "{lost}");
    monitor.next_stderr_line(&format!("localhost:{port} host/"));
    let text = monitor.next_stderr_line("cannot reach the server");
    assert!(text.contains(&format!("localhost:{port}")), "{text}");
    // A new server has other reflectors.
    let again = Server::spawn(rperf().args(["-lp", &port.to_string()]));
    let up = next_line(&monitor, "\"to\":\"up\"");
    assert_eq!(up["target"], format!("localhost:{port}"), "{up}");
    send_signal(monitor.id(), "TERM");
    let output = monitor.wait();
    assert_eq!(output.code(), Some(0), "{output}");
    let lines = output.stdout.lines();
    let last: Vec<Value> = lines
        .rev()
        .take(2)
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let line_of = |server: &Server| {
        let name = format!("localhost:{}", server.port);
        let line = last.iter().find(|line| line["target"] == name);
        line.unwrap_or_else(|| panic!("no line of {name}: {last:?}"))
    };
    for line in [line_of(&first), line_of(&again)] {
        assert_eq!(line["type"], "path", "{line}");
        assert_eq!(line["state"], "up");
        let count = |name: &str| line[name].as_u64().unwrap();
        let ended = count("answered") + count("late") + count("lost");
        assert!(count("sent") >= ended && count("answered") > 0, "{line}");
        assert!(line["network_ns"]["min"].as_u64() > Some(0), "{line}");
        assert!(line["host_avg_ns"].as_u64() > Some(0), "{line}");
        assert!(line["peer_avg_ns"].as_u64() > Some(0), "{line}");
    }
    let line = line_of(&again);
    assert!(line["lost"].as_u64() > Some(0), "{line}");
}

/// Sets a flag when it is dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_server_that_restarts_under_load_is_used_again() {
    const CLIENTS: usize = 4;
    let first = Server::start();
    let port = first.port;
    let monitor = monitor(&format!("localhost:{port}"), "");
    next_line(&monitor, "\"to\":\"up\"");
    let stop = AtomicBool::new(false);
    let (stop, on_panic) = (&stop, SetOnDrop(&stop));
    let (server, failures) = std::thread::scope(|scope| {
        let client = |number: usize| {
            let test = ["tcp_bw", "tcp_lat", "udp_lat", "udp_bw"][number % 4];
            let line = format!("-lp {port} -ws 20 -to 3 -t 50ms localhost {test}");
            let mut failures = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let output = run(&line);
                // A client that was interrupted by the restart has a clear error.
                let is_clean = match output.code() {
                    Some(0) => true,
                    Some(1) => output.stderr.starts_with("rperf: "),
                    _ => false,
                };
                if !is_clean || output.stderr.contains("panicked") {
                    failures.push(format!("{line}: {output}"));
                }
            }
            failures
        };
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || client(number)))
            .collect();
        // A failed assertion must end the clients, because the scope waits for them.
        let _on_panic = on_panic;
        let mut server = first;
        for signal in ["KILL", "TERM"] {
            std::thread::sleep(Duration::from_millis(700));
            server.signal(signal);
            server.wait();
            next_line(&monitor, "\"to\":\"lost\"");
            server = Server::spawn(rperf().args(["-lp", &port.to_string()]));
            next_line(&monitor, "\"to\":\"up\"");
        }
        stop.store(true, Ordering::Relaxed);
        let failures = clients
            .into_iter()
            .flat_map(|client| client.join().unwrap());
        (server, failures.collect::<Vec<_>>())
    });
    assert!(failures.is_empty(), "{failures:#?}");
    server.assert_responds();
    send_signal(monitor.id(), "TERM");
    let output = monitor.wait();
    assert_eq!(output.code(), Some(0), "{output}");
}

#[test]
fn a_host_that_does_not_respond_delays_no_other() {
    let server = Server::start();
    // A port without a server, and an address for documentation, which no host has.
    let hosts = format!("localhost:{},localhost:1,192.0.2.1", server.port);
    let monitor = monitor(&hosts, "--time 4s --report-interval 1s");
    next_line(&monitor, "\"to\":\"up\"");
    let output = monitor.wait();
    assert_eq!(output.code(), Some(1), "{output}");
    let last = output.stdout.lines().last().unwrap();
    let line: Value = serde_json::from_str(last).unwrap();
    let sent = line["sent"].as_u64().unwrap();
    // At 20 per second.
    assert!(sent >= 30, "{line}");
    let missing = "no path to localhost:1 was found";
    assert!(output.stderr.contains(missing), "{output}");
}

#[test]
fn status_and_summary_name_what_is_not_up() {
    let server = Server::start();
    let line = format!(
        "monitor --interval 50ms --time 1500ms localhost:{}",
        server.port
    );
    let output = run(&line);
    assert_eq!(output.code(), Some(0), "{output}");
    assert!(output.stdout.starts_with("1 paths up; "), "{output}");
    for (line, expected) in [
        ("monitor", "--hosts-file"),
        (
            "monitor --devices mlx5_77 localhost",
            "no active port of mlx5_77",
        ),
        ("monitor localhost,localhost", "named twice"),
        ("monitor --token-file /nowhere localhost", "/nowhere"),
    ] {
        let code = if expected.starts_with('/') { 1 } else { 2 };
        let text = fails(line, code);
        assert!(text.contains(expected), "{line}: {text}");
    }
    let help = run("monitor --help");
    assert!(help.stdout.contains("--lost-after"), "{help}");
}

/// Runs the command line of a systemd unit, with another port of the metrics and another directory
/// of credentials.
fn metrics_of_unit(unit: &str, program: &str, port: &str, credentials: &str) {
    let prefix = format!(
        "ExecStart=/usr/bin/{} ",
        program.rsplit('/').next().unwrap()
    );
    let line = unit.lines().find_map(|line| line.strip_prefix(&prefix));
    let line = line.unwrap_or_else(|| panic!("no {prefix} in {unit}"));
    assert!(line.contains(&format!("--listen {port} ")), "{line}");
    let line = line
        .replace(port, &free_tcp_port().to_string())
        .replace("${CREDENTIALS_DIRECTORY}", credentials);
    let mut command = Command::new(program);
    let service = Process::spawn(command.args(line.split_whitespace()));
    service.next_stderr_line("metrics on");
    send_signal(service.id(), "TERM");
    let output = service.wait();
    assert!(output.success(), "{output}");
}

#[test]
fn command_lines_of_the_systemd_units_serve_metrics() {
    let server = Server::start();
    let directory = TempDir::new();
    directory.write("hosts", format!("localhost:{}\n", server.port));
    let monitor = include_str!("../../systemd/rperf-monitor.service");
    let credentials = directory.path().to_str().unwrap();
    metrics_of_unit(monitor, env!("CARGO_BIN_EXE_rperf"), "9743", credentials);
    let export = include_str!("../../systemd/ribinfo-export.service");
    metrics_of_unit(export, env!("CARGO_BIN_EXE_ribinfo"), "9742", credentials);
}

#[test]
fn a_server_with_a_token_answers_only_monitors_with_it() {
    let directory = TempDir::new();
    let path = directory.write("token", "a secret of some length");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let path = path.to_str().unwrap();
    let server = Server::with_options(&["--token-file", path]);
    let host = format!("localhost:{}", server.port);
    let without = monitor(&host, "");
    without.next_stderr_line("requires a token");
    let with = monitor(&host, &format!("--token-file {path}"));
    next_line(&with, "\"to\":\"up\"");
}
