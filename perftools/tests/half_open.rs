//! Thousands of clients that connect and send nothing, or only a part of a request.
//! `ci/stress hostile` opens more of them.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use common::resources::Usage;
use common::{Server, rperf, run};
use session::protocol::hello;
use socket2::{Domain, Socket, Type};
use test_support::process::Process;

const RIBINFO: &str = env!("CARGO_BIN_EXE_ribinfo");

/// Number of connections that are open at the same time.
fn connections() -> usize {
    std::env::var("HOSTILE_HALF_OPEN").map_or(500, |text| text.parse().expect("a number"))
}

/// Maximum growth of a server, in KiB. Most of it is the heaps of its threads.
const MAX_GROWTH_KIB: u64 = 64 << 10;
/// Maximum number of threads of connections: 512 of any address.
const MAX_THREADS: u64 = 520;
/// Clients that must be served meanwhile.
const CLIENTS: u32 = 10;

/// Connects from one of 200 addresses of this host, and sends `begin`.
fn connect(port: u16, number: usize, begin: &[u8]) -> Option<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let source = [127, 0, 1, (number % 200).to_le_bytes()[0]];
    socket.bind(&SocketAddr::from((source, 0)).into()).ok()?;
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    socket
        .connect_timeout(&to.into(), Duration::from_secs(10))
        .ok()?;
    let mut stream = TcpStream::from(socket);
    let _ = stream.write_all(begin);
    Some(stream)
}

/// Opens connections to a server that send a part of `request` and stay open. Clients of other
/// addresses must be served meanwhile, and nothing may be left afterwards.
fn assert_unharmed(name: &str, pid: u32, port: u16, request: &[u8], is_served: impl Fn() -> bool) {
    assert!(is_served(), "{name}");
    let before = Usage::when_idle(pid);
    let begin = Instant::now();
    let count = connections();
    let open: Vec<_> = (0..count)
        .filter_map(|number| connect(port, number, &request[..number % request.len()]))
        .collect();
    assert_eq!(open.len(), count, "{name}");
    let opened = begin.elapsed();
    let during = Usage::of(pid);
    let served = (0..CLIENTS).filter(|_| is_served()).count();
    assert_eq!(served, CLIENTS as usize, "{name}");
    assert!(
        during.threads < before.threads + MAX_THREADS
            && during.files < before.files + 3 * MAX_THREADS,
        "{name}: {before}, then {during}"
    );
    drop(open);
    let after = before.wait_until_released(pid);
    println!("{name}: {count} connections in {opened:?}: {before}; {during}; then {after}");
    let growth = after.resident_kib.saturating_sub(before.resident_kib);
    assert!(growth < MAX_GROWTH_KIB, "{name}: {before}, then {after}");
}

/// Starts a server whose first line ends with its port.
fn start(command: &mut Command) -> (Process, u16) {
    let server = Process::spawn(command);
    let line = server.next_stderr_line("");
    let port = line.trim_end_matches("/metrics").rsplit(':').next();
    let port = port.and_then(|port| port.parse().ok());
    (server, port.unwrap_or_else(|| panic!("no port: {line}")))
}

fn scrape(port: u16) -> bool {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a server");
    let mut text = String::new();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        .and_then(|()| stream.read_to_string(&mut text))
        .is_ok_and(|_| text.starts_with("HTTP/1.1 200"))
}

#[test]
fn half_open_connections_take_no_place_of_a_client() {
    let request = hello::encode_request(hello::PROTOCOL);
    let server = Server::start();
    assert_unharmed("rperf", server.id(), server.port, &request, || {
        run(&format!("{} conf", server.target())).success()
    });
}

#[test]
fn half_open_requests_take_no_place_of_a_scrape() {
    let request = b"GET /metrics HTTP/1.1\r\nAccept: */*\r\n";
    let mut export = Command::new(RIBINFO);
    export.args(["export", "--listen", "127.0.0.1:0", "--no-check"]);
    let (export, port) = start(&mut export);
    assert_unharmed("ribinfo export", export.id(), port, request, || {
        scrape(port)
    });
    let server = Server::start();
    let line = format!(
        "monitor --listen 127.0.0.1:0 --json localhost:{}",
        server.port
    );
    let (monitor, port) = start(rperf().args(line.split_whitespace()));
    assert_unharmed("rperf monitor", monitor.id(), port, request, || {
        scrape(port)
    });
}
