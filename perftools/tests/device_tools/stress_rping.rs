//! Clients and servers of rping's protocol that send random messages, to `ribping -S` and to
//! `ribping`. `ci/stress hostile` runs more sessions.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use ibverbs::{AccessFlags, RemoteMemory};
use perftools::ribping;
use perftools::ribping::args::PingArgs;
use perftools::ribping::rping::message::encode;
use perftools::ribping::stop::StopFlag;
use rdmacm::Listener;
use test_support::hostile::{Connection, Messages, Target, assert_limits};
use test_support::lab::netdev;
use test_support::leak_check::{ObjectCounts, objects_of};
use test_support::process::{self, Process, wait_until};
use test_support::random::Random;

use crate::common::{devices, ipv4_address};
use crate::rping_peer::Peer;
use test_support::usage::Usage;

const RIBPING: &str = env!("CARGO_BIN_EXE_ribping");
/// Port of the hostile server.
const PORT: u16 = 7198;
/// Longest time of a client with a hostile server: one ping, and the end of the connection.
const CLIENT_LIMIT: Duration = Duration::from_secs(30);

/// Returns a number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Returns a message: valid, with changed bytes, of another length, or random.
fn message(random: &mut Random, valid: [u8; 16]) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    match random.below(5) {
        0 => {}
        1 => {
            let index = random.below(bytes.len());
            bytes[index] ^= 1 << random.below(8);
        }
        2 => bytes[random.below(16)] = random.next_u64().to_le_bytes()[3],
        3 => bytes.resize(1 + random.below(64), 7),
        _ => bytes.fill_with(|| random.next_u64().to_le_bytes()[3]),
    }
    bytes
}

/// Returns the number of RDMA objects. librdmacm keeps an open context of each device that this
/// process has used.
fn objects(device: &str) -> ObjectCounts {
    let mut objects = objects_of(device);
    objects.remove("ctx");
    objects
}

fn assert_released(device: &str, before: &ObjectCounts) {
    let is_released = || objects(device) == *before;
    let released = wait_until(Duration::from_secs(60), is_released);
    assert!(released, "{device}: {before:?}, then {:?}", objects(device));
}

/// Interrupts a server, which must end without an error.
fn assert_ends(server: Process) {
    server.interrupt();
    let output = server.wait_timeout(CLIENT_LIMIT);
    assert!(
        output.success() && !output.stderr.contains("panicked"),
        "{output}"
    );
}

/// Sends random messages, and waits for the end of the connection or for a random time.
fn attack(peer: &mut Peer, random: &mut Random) {
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    let pd = peer.connection.qp_mut().pd().clone();
    let region = pd.shared(64, access).expect("memory");
    let held = peer.connection.qp_mut().hold(&region).expect("held");
    let _ = held;
    let valid = encode(region.remote());
    for _ in 0..=random.below(4) {
        let bytes = message(random, valid);
        peer.send(&bytes);
        thread::sleep(Duration::from_micros(random.below(3000) as u64));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn random_clients_do_not_stop_the_ping_server() {
    let count = setting("HOSTILE_RPING", 20);
    let seed = setting("HOSTILE_SEED", 1);
    for device in devices() {
        let address: IpAddr = ipv4_address(&device).parse().expect("an address");
        let objects = objects(&device);
        let server = Process::spawn(Command::new(RIBPING).args(["-S", "--via", "rdma_cm"]));
        server.next_stderr_line("answering connections");
        let to = SocketAddr::new(address, 7174);
        let mut random = Random::new(seed);
        Peer::connect(to);
        // The server may still start threads, and still close this connection.
        let before = Usage::when_idle(server.id());
        let begin = Instant::now();
        let mut rejected = 0;
        for _ in 0..count {
            match Peer::try_connect(to) {
                Some(mut peer) => attack(&mut peer, &mut random),
                None => rejected += 1,
            }
        }
        let line = format!("{RIBPING} -c 3 -i 0.01 -t 5000 --via rdma_cm {address}");
        let responds = || process::output(&mut process::command(&line)).success();
        assert!(wait_until(CLIENT_LIMIT, responds), "{line}");
        let after = before.wait_until_released(server.id());
        println!(
            "{device}: {count} sessions, seed {seed}, {rejected} rejected: {before}, then {after}, \
             {:?}",
            begin.elapsed()
        );
        assert!(after.resident_kib < before.resident_kib + (16 << 10));
        assert_ends(server);
        assert_released(&device, &objects);
    }
}

/// `ribping -S` over rdma_cm.
struct PingServer {
    pid: u32,
    to: SocketAddr,
    messages: Messages,
}

impl Target for PingServer {
    fn messages(&self) -> &Messages {
        &self.messages
    }

    fn connect(&self, _: u64) -> io::Result<Box<dyn Connection + '_>> {
        let peer = Peer::try_connect(self.to).ok_or(ErrorKind::ConnectionRefused)?;
        Ok(Box::new(peer))
    }

    fn serve(&self) -> Result<(), String> {
        let address = self.to.ip();
        let line = format!("{RIBPING} -c 1 -t 20000 --via rdma_cm {address}");
        let output = process::output(&mut process::command(&line));
        if output.success() {
            Ok(())
        } else {
            Err(output.to_string())
        }
    }

    fn pid(&self) -> u32 {
        self.pid
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn ribping_keeps_its_limits() {
    for device in devices() {
        let address: IpAddr = ipv4_address(&device).parse().expect("an address");
        let objects = objects(&device);
        let server = Process::spawn(Command::new(RIBPING).args(["-S", "--via", "rdma_cm"]));
        server.next_stderr_line("answering connections");
        let (addr, len) = (1 << 20, 64);
        let advertise = |rkey| encode(RemoteMemory { addr, len, rkey }).to_vec();
        let target = PingServer {
            pid: server.id(),
            to: SocketAddr::new(address, 7174),
            messages: Messages {
                session: [1, 2, 3].map(advertise).into(),
                smallest: |_| vec![0],
                longest: vec![0x5a; 1 << 16],
                before: 1,
            },
        };
        assert_limits("ribping over rdma_cm", &target);
        assert_ends(server);
        assert_released(&device, &objects);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn random_servers_do_not_count_as_answers() {
    let count = setting("HOSTILE_RPING", 20);
    let seed = setting("HOSTILE_SEED", 1);
    for device in devices() {
        let address: IpAddr = ipv4_address(&device).parse().expect("an address");
        let objects = objects(&device);
        let listener = Listener::bind(SocketAddr::new(address, PORT), 8).expect("a listener");
        let mut random = Random::new(seed);
        let begin = Instant::now();
        let line = format!("ribping -c 1 -t 30 --via rdma_cm --cm-port {PORT} {address}");
        for number in 0..count {
            let ping_begin = Instant::now();
            let report = thread::scope(|scope| {
                scope.spawn(|| {
                    if let Some(mut peer) = Peer::accept(&listener) {
                        attack(&mut peer, &mut random);
                    }
                });
                let args = PingArgs::try_parse_from(line.split_whitespace()).expect("arguments");
                ribping::run(&args, &StopFlag::default()).expect("a report")
            });
            let counts = report.counts();
            assert_eq!(
                (counts.transmitted, counts.received),
                (1, 0),
                "session {number}"
            );
            assert!(ping_begin.elapsed() < CLIENT_LIMIT, "session {number}");
        }
        println!(
            "{device}: {count} sessions, seed {seed}, {:?}",
            begin.elapsed()
        );
        drop(listener);
        assert_released(&device, &objects);
    }
}

/// A second address of the interface of a device. It is removed on drop.
struct SecondAddress {
    netdev: String,
    address: IpAddr,
}

impl SecondAddress {
    fn new(device: &str) -> Self {
        let own: Ipv4Addr = ipv4_address(device).parse().expect("an address");
        let [a, b, c, _] = own.octets();
        let second = Self {
            netdev: netdev(device),
            address: Ipv4Addr::from([a, b, c, 77]).into(),
        };
        let Self { netdev, address } = &second;
        process::run_line(&format!("ip address add {address}/24 dev {netdev}"));
        second
    }
}

impl Drop for SecondAddress {
    fn drop(&mut self) {
        let Self { netdev, address } = self;
        process::run_line(&format!("ip address delete {address}/24 dev {netdev}"));
    }
}

/// Starts connections from an address to a server without completing their handshakes, until `stop`
/// is set, and at least `count`. Returns the number of requests.
fn half_open(from: IpAddr, to: SocketAddr, count: u64, stop: &AtomicBool) -> u64 {
    // The oldest ones are cancelled, so that this process has enough memory.
    let mut open = VecDeque::new();
    let mut number = 0;
    while number < count || !stop.load(Ordering::Relaxed) {
        if open.len() == 400 {
            open.pop_front();
        }
        if let Some(connecting) = Peer::begin(from, to) {
            open.push_back(connecting);
            number += 1;
        }
    }
    number
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn half_open_connections_take_no_place_of_a_ping() {
    let count = setting("HOSTILE_HALF_OPEN", 500);
    for device in devices() {
        let address: IpAddr = ipv4_address(&device).parse().expect("an address");
        let objects = objects(&device);
        let server = Process::spawn(Command::new(RIBPING).args(["-S", "--via", "rdma_cm"]));
        server.next_stderr_line("answering connections");
        let to = SocketAddr::new(address, 7174);
        drop(Peer::connect(to));
        let before = Usage::when_idle(server.id());
        let second = SecondAddress::new(&device);
        let (begin, stop) = (Instant::now(), AtomicBool::new(false));
        let line = format!("{RIBPING} -c 3 -i 0.01 -t 5000 --via rdma_cm {address}");
        let (requests, failures) = thread::scope(|scope| {
            let flood = scope.spawn(|| half_open(second.address, to, count, &stop));
            let mut failures = Vec::new();
            for _ in 0..5 {
                thread::sleep(Duration::from_millis(500));
                let output = process::output(&mut process::command(&line));
                if !output.success() {
                    failures.push(output);
                }
            }
            stop.store(true, Ordering::Relaxed);
            (flood.join().expect("no panic"), failures)
        });
        assert!(failures.is_empty(), "{line}: {failures:?}");
        let after = before.wait_until_released(server.id());
        println!(
            "{device}: {requests} requests in {:?}, then {after}",
            begin.elapsed()
        );
        assert!(after.resident_kib < before.resident_kib + (16 << 10));
        assert_ends(server);
        assert_released(&device, &objects);
    }
}
