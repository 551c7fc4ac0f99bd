//! Servers of `rperf` and `ribinfo` against the hostile peers of [`test_support::hostile`].

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use session::probe::packet::{Kind, Packet};
use session::probe::{ReflectorAddress, ReflectorInfo};
use session::protocol::{frame, hello};
use session::rperf::message::Message;
use socket2::{Domain, Socket, Type};
use test_support::hostile::{Connection, Messages, Target, assert_limits, divide};
use test_support::process::Process;

use crate::changed::token_file;
use crate::common::{Server, rperf, run};

/// Time limit of an honest peer.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns a socket that is bound to one of 200 addresses of this host.
fn bind(number: u64, kind: Type) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, kind, None)?;
    let source = [127, 0, 1, (number % 200).to_le_bytes()[0]];
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    Ok(socket)
}

/// Connects a hostile peer over TCP.
fn connect(port: u16, number: u64) -> io::Result<Box<dyn Connection>> {
    let socket = bind(number, Type::STREAM)?;
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    socket.connect_timeout(&to.into(), LIMIT)?;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(Box::new(stream))
}

/// A server over TCP.
struct TcpServer<F> {
    pid: u32,
    port: u16,
    messages: Messages,
    serve: F,
}

impl<F: Fn(u16) -> Result<(), String> + Sync> Target for TcpServer<F> {
    fn messages(&self) -> &Messages {
        &self.messages
    }

    fn connect(&self, number: u64) -> io::Result<Box<dyn Connection + '_>> {
        connect(self.port, number)
    }

    fn serve(&self) -> Result<(), String> {
        (self.serve)(self.port)
    }

    fn pid(&self) -> u32 {
        self.pid
    }
}

/// Runs `client` with the port of a relay to a server. Returns what it has sent over the
/// connection with the most bytes, which is its control connection.
fn record(server: u16, client: impl FnOnce(u16)) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let recorded: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let all = Arc::clone(&recorded);
    thread::spawn(move || {
        for near in listener.incoming() {
            let near = near.unwrap();
            let far = TcpStream::connect(("127.0.0.1", server)).unwrap();
            let mut index = all.lock().unwrap();
            index.push(Vec::new());
            let number = index.len() - 1;
            let (mut from_server, mut to_client) =
                (far.try_clone().unwrap(), near.try_clone().unwrap());
            thread::spawn(move || {
                let _ = io::copy(&mut from_server, &mut to_client);
                let _ = to_client.shutdown(Shutdown::Write);
            });
            let all = Arc::clone(&all);
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(len @ 1..) = (&near).read(&mut bytes) {
                    all.lock().unwrap()[number].extend(&bytes[..len]);
                    if (&far).write_all(&bytes[..len]).is_err() {
                        break;
                    }
                }
                let _ = far.shutdown(Shutdown::Write);
            });
        }
    });
    client(port);
    let recorded = std::mem::take(&mut *recorded.lock().unwrap());
    let longest = recorded.into_iter().max_by_key(Vec::len);
    longest.expect("a connection")
}

/// Returns the length of a frame of the control protocol.
fn frame_len(bytes: &[u8]) -> usize {
    let len = bytes.first_chunk().map(|len| u32::from_be_bytes(*len));
    4 + len.map_or(0, |len| len as usize)
}

/// Returns a frame of the control protocol.
fn frame(json: &str, len: usize) -> Vec<u8> {
    let mut bytes = u32::try_from(len).unwrap().to_be_bytes().to_vec();
    bytes.extend(json.bytes());
    bytes.resize(4 + len, b' ');
    bytes
}

/// Returns a message that takes more memory than its length.
fn large_ready() -> String {
    let via = json!({
        "device": "", "port": 0, "link": "", "gid_index": null, "address": "", "cm": false,
        "mtu": null, "port_mtu": null, "wait": "events",
    });
    json!({ "ready": { "via": via, "memory": vec![Value::Null; 12_000] } }).to_string()
}

/// Returns the messages of a client of the control protocol whose session was recorded.
fn control_messages(recorded: &[u8]) -> Messages {
    let session = divide(recorded, hello::REQUEST_LEN, frame_len);
    assert!(session.len() > 1, "{recorded:?}");
    Messages {
        smallest: |_| frame(r#""heartbeat""#, 11),
        longest: frame(&large_ready(), frame::MAX_LEN),
        before: session.len().min(3),
        session,
    }
}

/// Runs a command line of `rperf`, which must succeed. A link of a mesh may be slow (status 3).
fn rperf_succeeds(line: &str) -> Result<(), String> {
    let output = run(line);
    match output.code() {
        Some(0 | 3) => Ok(()),
        _ => Err(format!("{line}: {output}")),
    }
}

/// Attacks a server of rperf. `test` and `honest` are arguments of clients, in which `PORT` stands
/// for the port.
fn attack_rperf(protocol: &str, options: &[&str], test: &str, honest: &str, split: Split) {
    let server = Server::with_options(&[&["--max-timeout", "1"], options].concat());
    let line = |words: &str, port: u16| words.replace("PORT", &port.to_string());
    let recorded = record(server.port, |port| {
        rperf_succeeds(&line(test, port)).unwrap();
    });
    let target = TcpServer {
        pid: server.id(),
        port: server.port,
        messages: split(&recorded),
        serve: |port| rperf_succeeds(&line(honest, port)),
    };
    assert_limits(protocol, &target);
    assert_ends(server);
}

/// Returns the messages of a recorded client.
type Split = fn(&[u8]) -> Messages;

fn assert_ends(server: Server) {
    server.signal("TERM");
    let output = server.wait_for_exit();
    assert!(
        output.success() && !output.stderr.contains("panicked"),
        "{output}"
    );
}

#[test]
fn rperf_keeps_its_limits() {
    let test = "-lp PORT 127.0.0.1 -n 20 tcp_lat";
    let honest = "-lp PORT 127.0.0.1 conf";
    attack_rperf("rperf control", &[], test, honest, control_messages);
}

#[test]
fn rperf_with_a_token_keeps_its_limits() {
    let token = token_file();
    let option = format!("--token-file={}", token.1.display());
    let test = format!("-lp PORT {option} 127.0.0.1 -n 20 tcp_lat");
    let honest = format!("-lp PORT {option} 127.0.0.1 conf");
    // A peer without the token has a recording of a client only: the handshake, and records.
    let split: Split = |recorded| {
        let len = |bytes: &[u8]| {
            let len = bytes.first_chunk().map(|len| u16::from_be_bytes(*len));
            2 + len.map_or(0, usize::from)
        };
        let session = divide(recorded, hello::REQUEST_LEN, len);
        Messages {
            smallest: |_| vec![0, 0],
            longest: vec![0xff; 2 + usize::from(u16::MAX)],
            before: 2,
            session,
        }
    };
    let protocol = "rperf control with a token";
    attack_rperf(protocol, &[&option], &test, &honest, split);
}

#[test]
fn qperf_keeps_its_limits() {
    let test = "--qperf -lp PORT 127.0.0.1 -t 1 tcp_lat";
    let honest = "--qperf -lp PORT 127.0.0.1 conf";
    // After the request, synchronization messages have seven bytes.
    let split: Split = |recorded| Messages {
        session: divide(recorded, hello::REQUEST_LEN, |_| 7),
        smallest: |_| vec![0],
        longest: vec![0xff; 65_536],
        before: 1,
    };
    attack_rperf("qperf control", &[], test, honest, split);
}

#[test]
fn a_mesh_keeps_its_limits() {
    let options = ["--mesh", "--allow", "127.0.0.0/8"];
    let other = Server::with_options(&options);
    let test = format!("mesh 127.0.0.1:PORT,127.0.0.1:{} -n 20 tcp_lat", other.port);
    let honest = "-lp PORT 127.0.0.1 conf";
    attack_rperf("mesh", &options, &test, honest, control_messages);
}

/// Requests the reflectors of a server.
fn request_reflectors(port: u16) -> base::error::Result<Vec<ReflectorInfo>> {
    let system = |error| base::error::Error::system("the server", &error);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(system)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(system)?;
    let greeting = hello::encode_request(hello::PROTOCOL);
    stream.write_all(&greeting).map_err(system)?;
    stream.read_exact(&mut [0; hello::LEN]).map_err(system)?;
    frame::write(&mut stream, &Message::AskReflectors)?;
    match frame::read_up_to(&mut stream, frame::MAX_FACTS_LEN)? {
        Message::Reflectors(reflectors) => Ok(reflectors),
        other => Err(other.unexpected("the server")),
    }
}

#[test]
fn a_monitored_server_keeps_its_limits() {
    let server = Server::start();
    let request = serde_json::to_string(&Message::AskReflectors).unwrap();
    let mut recorded = hello::encode_request(hello::PROTOCOL).to_vec();
    recorded.extend(frame(&request, request.len()));
    let target = TcpServer {
        pid: server.id(),
        port: server.port,
        messages: control_messages(&recorded),
        serve: |port| match request_reflectors(port) {
            Ok(reflectors) if !reflectors.is_empty() => Ok(()),
            other => Err(format!("{other:?}")),
        },
    };
    assert_limits("monitor", &target);
    assert_ends(server);
}

/// A reflector over UDP.
struct Reflector {
    pid: u32,
    address: SocketAddr,
    messages: Messages,
    probe: Packet,
}

impl Target for Reflector {
    fn messages(&self) -> &Messages {
        &self.messages
    }

    fn connect(&self, number: u64) -> io::Result<Box<dyn Connection + '_>> {
        let socket = UdpSocket::from(bind(number, Type::DGRAM)?);
        socket.connect(self.address)?;
        socket.set_nonblocking(true)?;
        // A storm has a datagram of each address.
        socket.send(&self.messages.session[0])?;
        Ok(Box::new(socket))
    }

    /// Probes until one is answered: a flood fills the socket of the reflector.
    fn serve(&self) -> Result<(), String> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(self.address).unwrap();
        let timeout = Duration::from_millis(50);
        socket.set_read_timeout(Some(timeout)).unwrap();
        let begin = Instant::now();
        for id in 1.. {
            if begin.elapsed() > LIMIT {
                return Err(format!("{id} probes without an answer"));
            }
            let _ = socket.send(&Packet { id, ..self.probe }.encode());
            let mut bytes = [0; 300];
            let len = socket.recv(&mut bytes).unwrap_or(0);
            if Packet::decode(&bytes[..len]).is_some_and(|answer| answer.kind == Kind::Answer) {
                return Ok(());
            }
        }
        unreachable!("the loop returns")
    }

    fn pid(&self) -> u32 {
        self.pid
    }
}

#[test]
fn a_reflector_keeps_its_limits() {
    let server = Server::start();
    let reflectors = request_reflectors(server.port).unwrap();
    let over_udp = reflectors.iter().find_map(|r| match r.address {
        ReflectorAddress::Udp(address) => Some((address, r.key)),
        ReflectorAddress::QueuePair { .. } => None,
    });
    let (address, key) = over_udp.expect("a reflector over UDP");
    let probe = Packet {
        kind: Kind::Probe,
        flow_label: 0,
        key,
        session: 1,
        id: 1,
        nanos: 0,
        qkey: 0,
    };
    let of_kind = |kind| Packet { kind, ..probe }.encode();
    let target = Reflector {
        pid: server.id(),
        address: SocketAddr::from(([127, 0, 0, 1], address.port())),
        messages: Messages {
            // Answers are never due at a reflector.
            session: [Kind::Probe, Kind::Answer, Kind::Timing]
                .map(of_kind)
                .into(),
            smallest: |_| vec![0],
            longest: vec![0x5a; 65_000],
            before: 1,
        },
        probe,
    };
    assert_limits("reflector", &target);
    assert_ends(server);
}

/// Requests the metrics of an exporter.
fn scrape(port: u16) -> Result<(), String> {
    let request = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    };
    match request() {
        Ok(text) if text.starts_with("HTTP/1.1 200") => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// Attacks an exporter. Its first line ends with its port.
fn attack_exporter(protocol: &str, command: &mut Command) {
    let exporter = Process::spawn(command);
    let line = exporter.next_stderr_line("");
    let port = line.trim_end_matches("/metrics").rsplit(':').next();
    let port = port.and_then(|port| port.parse().ok());
    let lines = ["GET /metrics HTTP/1.1\r\n", "Accept: */*\r\n", "\r\n"];
    let target = TcpServer {
        pid: exporter.id(),
        port: port.unwrap_or_else(|| panic!("no port: {line}")),
        messages: Messages {
            session: lines.map(Into::into).into(),
            smallest: |_| b"a:\r\n".into(),
            longest: vec![b'a'; 65_536],
            before: 1,
        },
        serve: scrape,
    };
    assert_limits(protocol, &target);
    exporter.interrupt();
    let output = exporter.wait();
    assert!(!output.stderr.contains("panicked"), "{output}");
}

#[test]
fn an_exporter_keeps_its_limits() {
    let mut export = Command::new(env!("CARGO_BIN_EXE_ribinfo"));
    export.args(["export", "--listen", "127.0.0.1:0", "--no-check"]);
    attack_exporter("HTTP of `ribinfo export`", &mut export);
}

#[test]
fn a_monitor_keeps_its_limits() {
    let server = Server::start();
    let port = server.port;
    let line = format!("monitor --listen 127.0.0.1:0 --json localhost:{port}");
    let command = &mut rperf();
    attack_exporter("HTTP of `rperf monitor`", command.args(line.split(' ')));
}
