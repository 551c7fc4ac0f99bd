//! Servers and clients of `rperf` against a peer that floods the control connection or sends texts
//! that are unsafe to print.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use clap::Parser;
use measure::data_key::DataKey;
use measure::spec::test::Test;
use perftools::rperf::args::command_line::Options;
use serde_json::{Value, json};
use session::probe::ReflectorAddress;
use session::probe::packet::{Kind, Packet};
use session::protocol::{frame, handshake, hello};
use session::rperf::message::Message;
use socket2::{Domain, Socket, Type};
use test_support::process::{Process, TIMEOUT, send_signal, wait_until};
use test_support::temp_dir::TempDir;
use test_support::usage::peak_kib;

use crate::common::{self, Server, rperf, run};

/// Maximum growth of a process that a peer floods, in KiB.
const MAX_GROWTH_KIB: u64 = 4096;
/// Number of frames in a flood.
const FRAMES: u32 = 16_000;

/// Sends a hello and reads that of the peer.
fn exchange_hello(mut stream: &TcpStream) {
    let timeout = Some(Duration::from_secs(20));
    stream.set_read_timeout(timeout).unwrap();
    stream.set_write_timeout(timeout).unwrap();
    stream
        .write_all(&hello::encode_request(hello::PROTOCOL))
        .unwrap();
    stream.read_exact(&mut [0; hello::LEN]).unwrap();
}

/// Reads the greeting of a client and replies as a server.
fn answer_hello(mut stream: &TcpStream) {
    stream.read_exact(&mut [0; hello::REQUEST_LEN]).unwrap();
    stream.write_all(&hello::encode(hello::PROTOCOL)).unwrap();
}

/// Returns a frame with the JSON text, padded with spaces to the maximum length.
fn padded_frame(json: &str) -> Vec<u8> {
    let mut bytes = u32::try_from(frame::MAX_LEN)
        .unwrap()
        .to_be_bytes()
        .to_vec();
    bytes.extend(json.bytes());
    bytes.resize(4 + frame::MAX_LEN, b' ');
    bytes
}

/// Returns `Ready` with warnings of the maximum length, as JSON.
fn large_ready() -> String {
    let via = json!({
        "device": "", "port": 0, "link": "", "gid_index": null, "address": "", "cm": false,
        "mtu": null, "port_mtu": null, "wait": "events",
    });
    let memory = vec![Value::Null; 12_000];
    json!({ "ready": { "via": via, "memory": memory } }).to_string()
}

/// Sends [`FRAMES`], or fewer if the peer closes the connection. Returns the number of frames and
/// the growth of the process `pid` in KiB.
fn flood(mut stream: &TcpStream, json: &str, pid: u32) -> (u32, u64) {
    let before = peak_kib(pid);
    let mut growth = 0;
    let frame = padded_frame(json);
    for sent in 0..FRAMES {
        if sent % 50 == 0 {
            growth = peak_kib(pid).saturating_sub(before).max(growth);
        }
        if stream.write_all(&frame).is_err() {
            return (sent, growth);
        }
    }
    (FRAMES, growth)
}

/// Connects as a client and requests a test over sockets, whose data uses the server's port.
/// Returns the control connection and the key of the data connection.
fn request_test(server: &Server, test: Test) -> (TcpStream, DataKey) {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    exchange_hello(&stream);
    let options = "rperf --time=60 --timeout=60 --timeout=remote=60 --msg-size=1K";
    let spec = Options::try_parse_from(options.split(' '))
        .unwrap()
        .to_spec(test)
        .unwrap();
    let request = Message::Request {
        spec: Box::new(spec),
        client_info: None,
    };
    frame::write(&mut stream, &request).unwrap();
    let reply = frame::read::<Message>(&mut stream).unwrap();
    let Message::Listening(info) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(info.port, 0);
    (stream, info.key)
}

/// Sends wrong tokens from 127.0.0.2 and from the address of the client until `stop` is set.
fn send_wrong_tokens(port: u16, stop: &AtomicBool) {
    let greeting = hello::encode_request(hello::PROTOCOL);
    let len = u16::try_from(handshake::MESSAGE_LEN).unwrap().to_be_bytes();
    let bytes = [&greeting[..], &len, &[7; handshake::MESSAGE_LEN]].concat();
    for number in 0_u8.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let source = SocketAddr::from(([127, 0, 0, 1 + (number & 1)], 0));
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        let connected = socket
            .bind(&source.into())
            .and_then(|()| socket.connect(&to.into()));
        let mut stream = TcpStream::from(socket);
        if connected.is_ok() && stream.write_all(&bytes).is_ok() {
            stream
                .set_read_timeout(Some(Duration::from_millis(300)))
                .unwrap();
            let _ = stream.read(&mut [0; 200]);
        }
    }
}

#[test]
fn a_flood_of_wrong_tokens_locks_nobody_out() {
    let dir = TempDir::new();
    let path = dir.write("token", "a secret of some length");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let option = format!("--token-file={}", path.display());
    let server = Server::with_options(&[&option]);
    let stop = AtomicBool::new(false);
    let failures: Vec<_> = std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| send_wrong_tokens(server.port, &stop));
        }
        // The flood has begun when the server has rejected a client.
        server.wait_for_log("token differs from the server's");
        let attempt = || run(&format!("{} {option} conf", server.target()));
        // On a busy machine, the oldest pending connection of the address can be the client's.
        let is_locked_out = || (0..3).all(|_| attempt().code() != Some(0));
        let failures = (0..10).filter(|_| is_locked_out()).collect();
        stop.store(true, Ordering::Relaxed);
        failures
    });
    assert!(failures.is_empty(), "clients {failures:?}");
}

/// Returns the message with the port of a client's only stream.
fn bound_to(port: u16) -> Message {
    Message::Bound {
        port,
        more_ports: Vec::new(),
    }
}

/// Connects as a client, requests `tcp_bw` and sends `Bound`, so that the server waits for the data
/// connection.
fn begin_test(server: &Server) -> TcpStream {
    let (mut stream, _) = request_test(server, Test::TcpBw);
    frame::write(&mut stream, &bound_to(1)).unwrap();
    stream
}

/// Requests a test over sockets and floods the data connection from a thread until `stop` is set.
/// Returns the control connection when the server has begun the test.
fn flood_data(server: &Server, test: Test, stop: &Arc<AtomicBool>) -> TcpStream {
    let (mut control, key) = request_test(server, test);
    let address = ("127.0.0.1", server.port);
    let (stop, data) = (Arc::clone(stop), [0x5a; 1024]);
    let bound = if test == Test::TcpBw {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&key.stream_bytes()).unwrap();
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) && stream.write_all(&data).is_ok() {}
        });
        1
    } else {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let own_port = socket.local_addr().unwrap().port();
        socket.connect(address).unwrap();
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let _ = socket.send(&data);
            }
        });
        own_port
    };
    frame::write(&mut control, &bound_to(bound)).unwrap();
    control.write_all(&padded_frame(&large_ready())).unwrap();
    server.wait_for_log("begins");
    control
}

#[test]
fn a_data_connection_without_the_key_gets_nothing() {
    let server = Server::start();
    let (_control, key) = request_test(&server, Test::TcpBw);
    let reply = |key: DataKey| {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.write_all(&key.stream_bytes()).unwrap();
        let mut reply = Vec::new();
        stream.take(8).read_to_end(&mut reply).unwrap();
        reply
    };
    let guess = DataKey {
        client: key.client ^ 1,
        ..key
    };
    assert!(reply(guess).is_empty());
    server.wait_for_log("no test waits for the data connection; no reply was sent");
    // The guess does not disturb the test.
    key.check_server(&reply(key)).unwrap();
    // The test has all its streams.
    assert!(reply(key).is_empty());
    server.assert_responds();
}

#[test]
fn a_flood_of_data_ends_with_the_control_connection() {
    for test in [Test::TcpBw, Test::UdpBw] {
        let server = Server::with_options(&["-v", "--max-clients", "1"]);
        let stop = Arc::default();
        let control = flood_data(&server, test, &stop);
        drop(control);
        server.wait_for_log("the client closed the connection in the middle of the test");
        server.assert_responds();
        stop.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_flood_of_data_does_not_outlive_sigterm() {
    for test in [Test::TcpBw, Test::UdpBw] {
        let server = Server::with_options(&["-v"]);
        let stop = Arc::default();
        let _control = flood_data(&server, test, &stop);
        server.signal("TERM");
        assert_eq!(server.wait(), Some(0));
        stop.store(true, Ordering::Relaxed);
    }
}

/// Requests the reflectors of a server. Returns the port and the key of the one over UDP.
fn request_reflector(server: &Server) -> (u16, u64) {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    exchange_hello(&stream);
    frame::write(&mut stream, &Message::AskReflectors).unwrap();
    let reply = frame::read::<Message>(&mut stream).unwrap();
    let Message::Reflectors(reflectors) = reply else {
        panic!("{reply:?}")
    };
    let mut over_udp = reflectors.iter().filter_map(|r| match r.address {
        ReflectorAddress::Udp(address) => Some((address.port(), r.key)),
        ReflectorAddress::QueuePair { .. } => None,
    });
    over_udp.next().expect("a reflector over UDP")
}

#[test]
fn a_flood_of_probes_does_not_outlive_sigterm() {
    let server = Server::start();
    let (port, key) = request_reflector(&server);
    let probe = Packet {
        kind: Kind::Probe,
        flow_label: 0,
        key,
        session: 0,
        id: 0,
        nanos: 0,
        qkey: 0,
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // One of them has no key.
        for key in [key, key, !key] {
            let stop = &stop;
            scope.spawn(move || {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.connect(("127.0.0.1", port)).unwrap();
                let bytes = Packet { key, ..probe }.encode();
                while !stop.load(Ordering::Relaxed) {
                    let _ = socket.send(&bytes);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        server.assert_responds();
        let begin = Instant::now();
        server.signal("TERM");
        let code = server.wait();
        let taken = begin.elapsed();
        stop.store(true, Ordering::Relaxed);
        println!("SIGTERM during a flood of probes: {taken:?}");
        assert_eq!(code, Some(0));
        assert!(taken < Duration::from_secs(3), "{taken:?}");
    });
}

#[test]
fn the_server_limits_the_timeout_of_a_client() {
    let server = Server::with_options(&["--max-timeout", "1"]);
    let begin = Instant::now();
    let _stream = begin_test(&server);
    server.wait_for_log("the client did not open its data connection within 2 s");
    let _silent = request_test(&server, Test::UdpBw);
    server.wait_for_log("the client sent nothing for 2 s");
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn flood_of_messages_does_not_grow_a_client() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = Process::spawn(rperf().args(["-lp", &port.to_string(), "127.0.0.1", "tcp_bw"]));
    let mut stream = listener.accept().unwrap().0;
    answer_hello(&stream);
    let request = frame::read::<Message>(&mut stream).unwrap();
    assert!(matches!(request, Message::Request { .. }), "{request:?}");
    // The client connects to the data port. This test accepts the connection and reads nothing.
    let data = TcpListener::bind("127.0.0.1:0").unwrap();
    let data_port = data.local_addr().unwrap().port();
    let listening =
        json!({ "listening": { "port": data_port, "key": { "client": 1, "server": 1 } } })
            .to_string();
    stream.write_all(&padded_frame(&listening)).unwrap();
    let _data = data.accept().unwrap();
    let (sent, growth) = flood(&stream, &large_ready(), client.id());
    assert!(
        sent < FRAMES && growth < MAX_GROWTH_KIB,
        "{sent} frames, {growth} KiB"
    );
    let output = client.wait();
    assert_eq!(output.code(), Some(1), "{output}");
    let expected = "the server sent an unexpected message: ready";
    assert!(output.stderr.contains(expected), "{output}");
}

/// A text that clears the screen, forges a line and reverses the text that follows.
const UNSAFE_TEXT: &str = "x\u{1b}[2J\nrperf: forged\u{202e}\u{9b}";
/// The same text, as it is printed.
const ESCAPED_TEXT: &str = r"x\u{1b}[2J\nrperf: forged\u{202e}\u{9b}";

/// Sends a frame with a message of an unknown type. The server logs the type.
fn send_unknown_message(port: u16, name: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    exchange_hello(&stream);
    let json = json!({ name: 1 }).to_string();
    stream.write_all(&padded_frame(&json)).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn texts_of_an_unknown_client_are_logged_escaped() {
    let server = Server::start();
    send_unknown_message(server.port, UNSAFE_TEXT);
    let line = server.wait_for_log("invalid message");
    assert!(line.contains(&format!("`{ESCAPED_TEXT}`")), "{line}");
    assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'));
    send_unknown_message(server.port, &"y".repeat(60_000));
    let line = server.wait_for_log("invalid message");
    assert!(line.chars().count() < 2_100, "{}", line.chars().count());
}

#[test]
fn texts_of_a_server_are_printed_escaped() {
    let host = json!({ "node": UNSAFE_TEXT, "cpu": UNSAFE_TEXT, "os": UNSAFE_TEXT, "rperf": "1" });
    for (reply, status) in [
        (json!({ "conf": host }), 0),
        (json!({ "error": { "text": UNSAFE_TEXT } }), 1),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = Process::spawn(rperf().args(["-lp", &port.to_string(), "127.0.0.1", "conf"]));
        let mut stream = listener.accept().unwrap().0;
        answer_hello(&stream);
        frame::read::<Message>(&mut stream).unwrap();
        frame::write(&mut stream, &reply).unwrap();
        let output = client.wait();
        assert_eq!(output.code(), Some(status), "{output}");
        let text = output.stdout + &output.stderr;
        assert!(text.contains(ESCAPED_TEXT), "{text}");
        let is_unsafe = |c: char| c == '\u{202e}' || c.is_control() && c != '\n';
        assert!(!text.contains(is_unsafe), "{text}");
    }
}

#[test]
fn flood_of_log_lines_is_limited() {
    let server = Server::start();
    let begin = Instant::now();
    // A busy machine may need more messages, because 20 lines are allowed per second.
    let (sent, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let more = || !enough.load(Relaxed) && begin.elapsed() < TIMEOUT;
                while sent.load(Relaxed) < 400 || more() {
                    send_unknown_message(server.port, "z");
                    sent.fetch_add(1, Relaxed);
                }
            });
        }
        server.wait_for_log("log lines suppressed");
        enough.store(true, Relaxed);
    });
    std::thread::sleep(Duration::from_secs(3));
    let passed = begin.elapsed().as_secs() + 1;
    server.signal("TERM");
    let log = server.wait_for_exit().stderr;
    let suppressed = log.lines().map(suppressed_lines).sum::<u64>();
    // The first 100 lines and 20 per second are written.
    let sent = sent.into_inner();
    let expected = sent.saturating_sub(100 + 20 * passed)..=sent - 100;
    assert!(
        expected.contains(&suppressed),
        "{suppressed} of {sent}: {log}"
    );
}

/// Returns the number of suppressed lines that a line of the log reports; 0 if it reports none.
fn suppressed_lines(line: &str) -> u64 {
    let words = line.strip_suffix(" log lines suppressed");
    words.map_or(0, |words| {
        words.rsplit(' ').next().unwrap().parse().unwrap()
    })
}

#[test]
fn server_with_an_unread_log_serves_and_stops() {
    let mut child = rperf()
        .args(["-lp", "0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The buffer of the reader keeps what it has read. Nothing is read after the first line.
    let mut log = BufReader::with_capacity(64, child.stderr.take().unwrap());
    let mut first = String::new();
    log.read_line(&mut first).unwrap();
    let port: u16 = first.trim().rsplit(':').next().unwrap().parse().unwrap();
    // A pipe holds 64 KiB.
    for _ in 0..80 {
        send_unknown_message(port, &"y".repeat(1500));
    }
    let output = common::run(&format!("-lp {port} 127.0.0.1 -n 100 conf tcp_lat"));
    assert!(output.success(), "{output}");
    send_signal(child.id(), "TERM");
    let has_ended = wait_until(Duration::from_secs(10), || {
        child.try_wait().unwrap().is_some()
    });
    let _ = child.kill();
    assert!(has_ended && child.wait().unwrap().success());
}
