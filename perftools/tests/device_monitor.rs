//! `rperf monitor` and `ribinfo export` on each device.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use common::resources::Usage;
use common::{Server, connects_directly, devices, rperf};
use ibverbs::wr::Destination;
use ibverbs::{AhAttr, Gid, GlobalRoute, Lid, Qkey, Qpn};
use measure::transport::device::{OpenedDevice, open_active_ports};
use serde_json::Value;
use session::probe::datagram_qp::{DatagramQp, Event};
use session::probe::packet::{Kind, Packet};
use session::probe::reflector::PROBER_QKEY;
use session::probe::{ReflectorAddress, ReflectorInfo};
use session::protocol::{frame, hello};
use session::rperf::message::Message;
use test_support::process::{self, Process, send_signal};

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
        "monitor --json-lines --interval 50ms --timeout 2s --devices {} localhost:{port}",
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
fn objects_of_processes_are_exported_and_listed() {
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_ribinfo"));
    let top = Process::spawn(command.args(["top", "--interval", "200ms"]));
    for device in &devices {
        top.next_stdout_line(&format!("{device}/1"));
    }
    let owner = top.next_stdout_line(" rperf ");
    assert!(
        devices.iter().any(|device| owner.contains(device)),
        "{owner}"
    );
    top.interrupt();
    assert_eq!(top.wait().code(), Some(0));
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
        let check = format!("ribinfo_check_level{{subject=\"port\",object=\"{device}/1\"}} 0.0");
        assert!(output.stdout.contains(&check), "{output}");
    }
    assert!(output.stdout.contains("counter=\"sent_pkts\""), "{output}");
}

/// Requests the reflector of a port.
fn reflector_of(server: &Server, port: &OpenedDevice) -> ReflectorInfo {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("a server");
    let greeting = hello::encode_request(hello::PROTOCOL);
    stream.write_all(&greeting).expect("sent");
    hello::read_reply(&mut stream).expect("a greeting");
    frame::write(&mut stream, &Message::AskReflectors).expect("sent");
    let reply = frame::read::<Message>(&mut stream).expect("a reply");
    let Message::Reflectors(reflectors) = reply else {
        panic!("{reply:?}")
    };
    let mut own = reflectors.into_iter().filter(|r| r.name == port.name());
    own.next().expect("a reflector of the port")
}

/// Sends probes to a reflector that each have a flow label of their own, and returns for each one
/// whether it was answered.
fn probe_with_flow_labels(port: &OpenedDevice, reflector: &ReflectorInfo, count: u32) -> Vec<bool> {
    let ReflectorAddress::QueuePair {
        addresses,
        qpn,
        qkey,
        ..
    } = &reflector.address
    else {
        panic!("{reflector:?}")
    };
    let mut qp = DatagramQp::new(port, PROBER_QKEY).expect("a queue pair");
    let address = addresses
        .iter()
        .find(|address| address.ip.is_some_and(|ip| ip.is_ipv4()));
    let address = address.expect("an IPv4 address");
    let index = u8::try_from(address.gid_index.expect("a GID")).expect("a small index");
    let route = GlobalRoute::new(Gid::from(address.ip.expect("an address")), index);
    let attr = AhAttr::for_lid(port.port_num, Lid(0)).grh(route);
    let handle = qp.pd().create_ah(&attr).expect("an address handle");
    let to = Destination {
        address: qp.qp().hold_address(&handle).expect("held"),
        qpn: Qpn(*qpn),
        qkey: Qkey(*qkey),
    };
    let mut answered = vec![false; count as usize];
    let mut events = Vec::new();
    let labels: Vec<u32> = (0..count).collect();
    for labels in labels.chunks(32) {
        for label in labels {
            let packet = Packet {
                kind: Kind::Probe,
                flow_label: *label,
                key: reflector.key,
                session: 1,
                id: (*label).into(),
                nanos: 0,
            };
            assert!(qp.send(&packet, to, 1).expect("sent"));
        }
        // The next probes follow the answers, so that none is lost in a queue.
        let deadline = Instant::now() + Duration::from_millis(200);
        let range = labels[0] as usize..labels[0] as usize + labels.len();
        while !answered[range.clone()].iter().all(|answered| *answered) && Instant::now() < deadline
        {
            qp.wait(Duration::from_millis(5)).expect("a device");
            qp.poll(&mut events).expect("completions");
            for event in events.drain(..) {
                if let Event::Received { packet, .. } = event {
                    answered[usize::try_from(packet.id).expect("an index")] = true;
                }
            }
        }
    }
    answered
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_reflector_answers_more_probers_than_it_keeps_addresses() {
    // It keeps 16,384.
    const PROBES: u32 = 20_000;
    let names = devices();
    let server = Server::start();
    for port in open_active_ports() {
        let device = port.context.device_name();
        if !names.iter().any(|name| name == device) || !connects_directly(device) {
            continue;
        }
        let reflector = reflector_of(&server, &port);
        assert!(probe_with_flow_labels(&port, &reflector, 10).contains(&true));
        let before = Usage::of(server.id());
        let answered = probe_with_flow_labels(&port, &reflector, PROBES);
        let lost = answered.iter().filter(|answered| !**answered).count();
        let after = Usage::of(server.id());
        println!("{device}: {lost} of {PROBES} probes lost; {before}, then {after}");
        // Some are lost while the addresses are released.
        assert!(lost < 500, "{lost}");
        assert!(
            answered[PROBES as usize - 100..]
                .iter()
                .all(|answered| *answered)
        );
    }
    server.assert_responds();
}
