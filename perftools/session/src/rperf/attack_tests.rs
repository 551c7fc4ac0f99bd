//! Tests of servers and clients with hostile peers: relays, coordinators and other servers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use base::error::{Kind, Result};
use measure::spec::Limit;
use measure::spec::test::Test;
use measure::stats::monitor::MonitorOptions;
use test_support::text::assert_contains;

use super::coordinator::RemoteTest;
use super::fake_backend::FakeBackend;
use super::message::ClientRequest;
use super::report_diagnosis::Report;
use super::rules::Rules;
use super::tests::{limited, server_addr, with_rules};
use crate::answer::Answer;
use crate::client;
use crate::connect::ServerAddr;
use crate::diagnosis::EncodedRecord;
use crate::protocol::hello;
use crate::protocol::token::Token;

/// A change of the bytes of one direction, which are at this position.
type Change<'a> = &'a (dyn Fn(usize, &mut [u8]) + Sync);

fn copy(mut from: &TcpStream, mut to: &TcpStream, change: Change<'_>) {
    let (mut bytes, mut position) = ([0; 4096], 0);
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        change(position, &mut bytes[..len]);
        position += len;
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Read);
    let _ = to.shutdown(Shutdown::Write);
}

/// Runs a test over a relay that changes the bytes from the client and those from the server.
fn run_over_relay(
    addr: &ServerAddr,
    backend: &FakeBackend,
    from_client: Change<'_>,
    from_server: Change<'_>,
) -> Result<Answer> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay_addr = ServerAddr {
        port: listener.local_addr().unwrap().port(),
        ..addr.clone()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect((addr.host.as_str(), addr.port)).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| copy(&client, &server, from_client));
                copy(&server, &client, from_server);
            });
        });
        let spec = limited(Test::RcLat, Limit::Messages(10));
        let options = MonitorOptions::default();
        client::run(&relay_addr, &spec, &backend, &Report, options)
    })
}

#[test]
fn a_relay_cannot_read_or_change_a_session_with_a_token() {
    let token = Token::from_line("0123456789abcdef").unwrap();
    let mut rules = Rules::default();
    rules.token = Some(token.clone());
    let backend = FakeBackend::default();
    with_rules(rules, &backend, |address| {
        let addr = ServerAddr {
            token: Some(token),
            ..server_addr(address)
        };
        let clear = std::sync::Mutex::new(Vec::new());
        let record = |_: usize, bytes: &mut [u8]| clear.lock().unwrap().extend_from_slice(bytes);
        run_over_relay(&addr, &backend, &record, &record).unwrap();
        let clear = clear.into_inner().unwrap();
        let contains = |text: &str| clear.windows(text.len()).any(|w| w == text.as_bytes());
        assert!(clear.len() > 1000 && !contains("rc_lat") && !contains("request"));
        let after_greetings = [hello::REQUEST_LEN, hello::LEN];
        // In the key, the tag of the handshake, the length of the first record, and its content.
        for offset in [2, 40, 51, 60, 300] {
            for direction in 0..2 {
                let at = after_greetings[direction] + offset;
                let flip = |position: usize, bytes: &mut [u8]| {
                    let index = at.checked_sub(position);
                    if let Some(byte) = index.and_then(|index| bytes.get_mut(index)) {
                        *byte ^= 1;
                    }
                };
                let none = |_: usize, _: &mut [u8]| {};
                let changes: [Change<'_>; 2] = [&flip, &none];
                let outcome =
                    run_over_relay(&addr, &backend, changes[direction], changes[1 - direction]);
                let error = outcome.unwrap_err();
                let is_found = matches!(
                    error.kind(),
                    Kind::Protocol | Kind::Limit | Kind::Gone | Kind::Peer | Kind::Test
                );
                assert!(is_found, "{direction} {offset}: {error}");
            }
        }
        // A greeting that claims that the server requires no token.
        let downgrade = |position: usize, bytes: &mut [u8]| {
            if position == 0 {
                bytes[10] = 0;
            }
        };
        let error = run_over_relay(&addr, &backend, &|_, _| {}, &downgrade).unwrap_err();
        assert!(error.to_string().contains("requires no token"), "{error}");
    });
}

fn mesh_rules(allow: &str) -> Rules {
    let mut rules = Rules::default();
    rules.mesh = true;
    rules.allow.push(allow.parse().unwrap());
    rules
}

/// Time limit of a test that fails. The server replies when it has passed.
const SHORT: Duration = Duration::from_millis(500);

/// Requests a test from a server, with the server at `peer`.
fn delegate(server: SocketAddr, peer: SocketAddr, timeout: Duration) -> Result<EncodedRecord> {
    let mut spec = limited(Test::RcLat, Limit::Messages(10));
    spec.client.timeout = timeout;
    let request = ClientRequest {
        spec,
        host: peer.ip().to_string(),
        port: peer.port(),
        wait: Duration::from_millis(200),
        common_start: false,
    };
    RemoteTest::request(
        "client",
        &server_addr(server),
        Duration::from_secs(5),
        request,
        Duration::from_secs(60),
    )?
    .result()
}

#[test]
fn messages_of_a_coordinator_out_of_turn_end_the_session() {
    let backend = FakeBackend::default();
    with_rules(mesh_rules("127.0.0.0/8"), &backend, |address| {
        let request = |common_start| {
            let spec = limited(Test::RcLat, Limit::Time(Duration::from_secs(600)));
            let request = ClientRequest {
                spec,
                host: address.ip().to_string(),
                port: address.port(),
                wait: SHORT,
                common_start,
            };
            let (timeout, limit) = (Duration::from_secs(30), Duration::from_secs(60));
            RemoteTest::request("client", &server_addr(address), timeout, request, limit).unwrap()
        };
        let mut early = request(false);
        early.start().unwrap();
        let mut repeated = request(true);
        repeated.wait_until_connected().unwrap();
        repeated.start().unwrap();
        repeated.start().unwrap();
        for test in [early, repeated] {
            let error = test.result().unwrap_err().to_string();
            assert!(error.contains("an unexpected message: start"), "{error}");
        }
    });
}

#[test]
fn coordinators_reach_allowed_networks_only() {
    let backend = FakeBackend::default();
    with_rules(mesh_rules("192.0.2.0/24"), &backend, |address| {
        // The coordinator is admitted because it is on the same host.
        let error = delegate(address, address, SHORT).unwrap_err();
        assert_contains(error, &["servers at 127.0.0.1 are not allowed"]);
    });
}

#[test]
fn coordinators_cannot_tell_the_ports_of_other_programs_apart() {
    let bind = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (silent, talking, closing) = (bind(), bind(), bind());
    let ports = [&silent, &talking, &closing].map(|l| l.local_addr().unwrap());
    let closed = bind().local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = talking.accept() {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        }
    });
    std::thread::spawn(move || while closing.accept().is_ok() {});
    with_rules(
        mesh_rules("127.0.0.0/8"),
        &FakeBackend::default(),
        |address| {
            let errors = ports.into_iter().chain([closed]).map(|port| {
                let begin = Instant::now();
                let error = delegate(address, port, SHORT).unwrap_err().to_string();
                assert!(begin.elapsed() >= Duration::from_millis(700), "{error}");
                error.replace(&port.port().to_string(), "N")
            });
            let errors: Vec<String> = errors.collect();
            assert!(
                errors[0].contains("cannot reach an rperf server"),
                "{errors:?}"
            );
            assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
        },
    );
    drop(silent);
}

#[test]
fn servers_cannot_direct_the_data_of_a_mesh_elsewhere() {
    for (address, is_admitted) in [("127.0.0.1", true), ("203.0.113.9", false)] {
        let mut backend = FakeBackend::default();
        backend.server_address = Some(address.parse().unwrap());
        with_rules(Rules::default(), &backend, |peer| {
            with_rules(mesh_rules("127.0.0.0/8"), &backend, |server| {
                let outcome = delegate(server, peer, Duration::from_secs(30));
                assert_eq!(outcome.is_ok(), is_admitted, "{outcome:?}");
                if let Err(error) = outcome {
                    assert_contains(error, &["RDMA address 203.0.113.9 is neither"]);
                }
            });
        });
    }
}
