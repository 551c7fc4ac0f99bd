//! Tests of the loops over loopback sockets, with both ends in this process.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::error::{Error, Kind, Result};
use socket2::Socket;
use test_support::text::assert_contains;

use super::endpoint;
use super::message_socket::{MessageSocket, ReceivedMessage, Sent};
use super::open::{self, BoundSocket, ClientIdentity};
use super::run::{self, SocketLoop};
use super::{EndMode, LoopParams, SocketKind};
use crate::data_key::DataKey;
use crate::engine::payload::Payload;
use crate::engine::{Measurement, Peer};
use crate::spec::Limit;
use crate::spec::payload_file::PayloadFile;

/// Messages sent by each end plus one; 0 while the end has not finished.
#[derive(Default)]
struct Finished([AtomicU64; 2]);

/// A [`Peer`] that exchanges the final counts of two threads; the number is this end's index.
struct Side<'a>(&'a Finished, usize);

impl Peer for Side<'_> {
    fn finish(&self, sent: u64) -> Result<()> {
        self.0.0[self.1].store(sent + 1, Ordering::Release);
        Ok(())
    }

    fn finished(&self) -> Option<u64> {
        self.0.0[1 - self.1].load(Ordering::Acquire).checked_sub(1)
    }

    fn failure(&self) -> Option<Error> {
        None
    }

    fn explain(&self, error: Error) -> Error {
        error
    }
}

const HOSTS: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

const KEY: DataKey = DataKey {
    client: 7,
    server: 9,
};

/// Waits for the stream that begins with the key.
fn accept(server: BoundSocket, timeout: Duration) -> Result<Socket> {
    server.accept(ClientIdentity::Key(KEY), timeout, &|| false)
}

/// Checks that a stream begins with the key of the server.
fn check_server(client: &Socket, key: DataKey) -> Result<()> {
    let timeout = Duration::from_secs(5);
    endpoint::check_server(SocketKind::Tcp, client, key, timeout, &|| false)
}

fn connected_pair(kind: SocketKind, host: &str, poll: bool) -> [MessageSocket; 2] {
    let address: SocketAddr = host.parse().unwrap();
    let server = BoundSocket::open(kind, address, 0).unwrap();
    let server_address = server.address();
    let (client, server) = if kind.is_datagram() {
        (
            BoundSocket::open(kind, address, 0)
                .unwrap()
                .join(server_address)
                .unwrap(),
            server.into_socket(),
        )
    } else {
        let client = open::connect(
            kind,
            address,
            server_address,
            Some(KEY),
            0,
            Duration::from_secs(2),
        )
        .unwrap();
        let server = accept(server, Duration::from_secs(2)).unwrap();
        check_server(&client, KEY).unwrap();
        (client, server)
    };
    [client, server].map(|socket| MessageSocket::new(socket, kind, poll).unwrap())
}

fn run_both(
    kind: SocketKind,
    host: &str,
    latency: bool,
    plan: &LoopParams,
    poll: bool,
) -> [Measurement; 2] {
    let [mut client, mut server] = connected_pair(kind, host, poll);
    let finished = Finished::default();
    let parts = if latency {
        (SocketLoop::Ping, SocketLoop::Pong)
    } else {
        (SocketLoop::Source, SocketLoop::Sink)
    };
    std::thread::scope(|scope| {
        let server_result = scope
            .spawn(|| run::run(parts.1, &mut server, plan, poll, &Side(&finished, 1)).unwrap());
        let client_result =
            run::run(parts.0, &mut client, plan, poll, &Side(&finished, 0)).unwrap();
        [client_result, server_result.join().unwrap()]
    })
}

fn params(size: usize, limit: Limit, end_mode: EndMode) -> LoopParams {
    LoopParams {
        size,
        limit,
        verify: true,
        payload: Payload::default(),
        access: false,
        timeout: Duration::from_secs(5),
        heartbeat: Duration::from_millis(500),
        end_mode,
        gap: None,
        burst: None,
        samples: false,
    }
}

#[test]
fn stream_messages_arrive_and_are_verified() {
    for host in HOSTS {
        for (size, n) in [(1, 3000), (4097, 500), (1 << 20, 30)] {
            let [client, server] = run_both(
                SocketKind::Tcp,
                host,
                false,
                &params(size, Limit::Messages(n), EndMode::Announced),
                false,
            );
            assert_eq!((client.stats.sent.msgs, server.stats.received.msgs), (n, n));
            assert_eq!(server.stats.verified, n * size as u64);
        }
    }
}

#[test]
fn latency_test_counts_round_trips_at_both_ends() {
    for host in HOSTS {
        for kind in [SocketKind::Tcp, SocketKind::Udp] {
            for poll in [false, true] {
                let [client, server] = run_both(
                    kind,
                    host,
                    true,
                    &params(100, Limit::Messages(300), EndMode::Announced),
                    poll,
                );
                assert_eq!(
                    (client.stats.received.msgs, server.stats.sent.msgs),
                    (300, 300)
                );
                assert_eq!(client.latency.unwrap().percentiles().unwrap().samples, 300);
            }
        }
    }
}

#[test]
fn received_datagrams_are_complete_despite_losses() {
    for host in HOSTS {
        for poll in [false, true] {
            let limit = Limit::Time(Duration::from_millis(200));
            let [client, server] = run_both(
                SocketKind::Udp,
                host,
                false,
                &params(1000, limit, EndMode::Announced),
                poll,
            );
            let (sent, received) = (client.stats.sent.msgs, server.stats.received.msgs);
            assert!(received > 0 && received <= sent + 1, "{received} of {sent}");
            assert!(server.stats.verified >= received * 1000);
        }
    }
}

#[test]
fn timed_test_ends_with_no_message_in_flight() {
    for latency in [false, true] {
        let limit = Limit::Time(Duration::from_millis(200));
        let [client, server] = run_both(
            SocketKind::Tcp,
            HOSTS[0],
            latency,
            &params(64 << 10, limit, EndMode::Announced),
            false,
        );
        assert!(client.stats.nanos >= 200_000_000);
        assert!(server.stats.received.msgs > 0);
    }
}

#[test]
fn ends_stop_by_their_own_clocks() {
    for (kind, latency) in [
        (SocketKind::Tcp, false),
        (SocketKind::Tcp, true),
        (SocketKind::Udp, false),
        (SocketKind::Udp, true),
    ] {
        let limit = Limit::Time(Duration::from_millis(200));
        let [client, server] = run_both(
            kind,
            HOSTS[1],
            latency,
            &params(512, limit, EndMode::Clock),
            false,
        );
        assert!(
            client.stats.sent.msgs > 0 && server.stats.received.msgs > 0,
            "{kind:?}"
        );
    }
}

#[test]
fn streams_of_another_server_are_rejected() {
    let address: SocketAddr = HOSTS[0].parse().unwrap();
    let limit = Duration::from_secs(5);
    let connect = |key| {
        let server = BoundSocket::open(SocketKind::Tcp, address, 0).unwrap();
        let to = server.address();
        let client = open::connect(SocketKind::Tcp, address, to, Some(key), 0, limit).unwrap();
        (client, accept(server, limit).unwrap())
    };
    let (client, _server) = connect(KEY);
    let error = check_server(&client, DataKey { server: 8, ..KEY }).unwrap_err();
    assert_contains(&error, &["it is not the server"]);
    // A server that closes the stream, or that is silent until the session ends.
    let (client, server) = connect(KEY);
    check_server(&client, KEY).unwrap();
    drop(server);
    check_server(&client, KEY).unwrap_err();
    let (client, _server) = connect(KEY);
    check_server(&client, KEY).unwrap();
    let gone = endpoint::check_server(SocketKind::Tcp, &client, KEY, limit * 100, &|| true);
    gone.unwrap_err();
}

#[test]
fn streams_with_a_wrong_key_are_rejected() {
    let address: SocketAddr = HOSTS[0].parse().unwrap();
    let server = BoundSocket::open(SocketKind::Tcp, address, 0).unwrap();
    let server_address = server.address();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| accept(server, Duration::from_secs(5)).unwrap());
        let _wrong_key = open::connect(
            SocketKind::Tcp,
            address,
            server_address,
            Some(DataKey { client: 8, ..KEY }),
            0,
            Duration::from_secs(2),
        )
        .unwrap();
        let client = open::connect(
            SocketKind::Tcp,
            address,
            server_address,
            Some(KEY),
            0,
            Duration::from_secs(2),
        )
        .unwrap();
        let accepted = accepted.join().unwrap();
        assert_eq!(
            accepted.peer_addr().unwrap().as_socket(),
            client.local_addr().unwrap().as_socket()
        );
    });
}

/// Connects to a server without a key.
fn connect_silently(server: SocketAddr) -> TcpStream {
    TcpStream::connect(server).unwrap()
}

#[test]
fn silent_streams_do_not_delay_the_client() {
    let address: SocketAddr = HOSTS[0].parse().unwrap();
    let server = BoundSocket::open(SocketKind::Tcp, address, 0).unwrap();
    let server_address = server.address();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| accept(server, Duration::from_secs(60)).unwrap());
        let _silent: Vec<TcpStream> = (0..40).map(|_| connect_silently(server_address)).collect();
        let mut client = connect_silently(server_address);
        // The key arrives in two parts.
        for part in KEY.stream_bytes().chunks(9) {
            std::thread::sleep(Duration::from_millis(50));
            client.write_all(part).unwrap();
        }
        let accepted = accepted.join().unwrap();
        let peer = accepted.peer_addr().unwrap().as_socket().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
    });
}

#[test]
fn missing_key_is_named() {
    let address: SocketAddr = HOSTS[0].parse().unwrap();
    let server = BoundSocket::open(SocketKind::Tcp, address, 0).unwrap();
    let _silent = connect_silently(server.address());
    let result = accept(server, Duration::from_millis(200));
    let text = result.unwrap_err().to_string();
    assert_contains(
        &text,
        &["connected over TCP, but its first bytes did not arrive within 200 ms"],
    );
}

#[test]
fn accept_ends_at_the_timeout_or_if_the_client_is_gone() {
    let listen = || BoundSocket::open(SocketKind::Tcp, HOSTS[0].parse().unwrap(), 0).unwrap();
    let text = listen()
        .accept(
            ClientIdentity::Key(KEY),
            Duration::from_millis(200),
            &|| false,
        )
        .unwrap_err()
        .to_string();
    assert_contains(&text, &["did not connect over TCP within 200 ms"]);
    let text = listen()
        .accept(ClientIdentity::Key(KEY), Duration::from_secs(60), &|| true)
        .unwrap_err()
        .to_string();
    assert!(text.contains("closed the control connection"), "{text}");
}

#[test]
fn a_udp_port_of_another_program_is_an_error_with_a_remedy() {
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let peer = "127.0.0.1:9".parse().unwrap();
    let text = open::join_at(address, peer, 0).unwrap_err().to_string();
    assert!(text.contains("receive from 127.0.0.1:9"), "{text}");
    assert!(text.contains("help: set --ip-port"), "{text}");
}

#[test]
fn damaged_payload_is_detected() {
    let [client, mut server] = connected_pair(SocketKind::Udp, HOSTS[0], false);
    client.socket.send(&[9; 64]).unwrap();
    let params = params(64, Limit::Messages(1), EndMode::Clock);
    let finished = Finished::default();
    let text = run::run(
        SocketLoop::Sink,
        &mut server,
        &params,
        false,
        &Side(&finished, 1),
    )
    .unwrap_err()
    .to_string();
    assert!(text.contains("damaged"), "{text}");
}

#[test]
fn missing_protocol_names_the_kernel_module() {
    for (kind, command) in [
        (SocketKind::Sctp, "modprobe sctp"),
        (SocketKind::Rds, "modprobe rds"),
    ] {
        match BoundSocket::open(kind, HOSTS[0].parse().unwrap(), 0) {
            Ok(socket) => assert_ne!(socket.address().port(), 0),
            Err(error) => assert!(
                error.to_string().contains(command) || kind == SocketKind::Rds,
                "{error}"
            ),
        }
    }
}

#[test]
fn a_repeated_datagram_does_not_hide_a_lost_one() {
    const SENT: u64 = 120;
    for verify in [false, true] {
        let address: SocketAddr = HOSTS[0].parse().unwrap();
        let server = BoundSocket::open(SocketKind::Udp, address, 0).unwrap();
        let relay = std::net::UdpSocket::bind(address).unwrap();
        let client = BoundSocket::open(SocketKind::Udp, address, 0).unwrap();
        let client = client.join(relay.local_addr().unwrap()).unwrap();
        let server_address = server.address();
        let [mut client, mut server] = [client, server.into_socket()]
            .map(|socket| MessageSocket::new(socket, SocketKind::Udp, false).unwrap());
        let timeout = Some(Duration::from_secs(10));
        relay.set_read_timeout(timeout).unwrap();
        // The relay drops every fourth datagram, and sends the others twice.
        let relayed = std::thread::spawn(move || {
            for number in 0..SENT {
                let mut bytes = [0; 64];
                relay.recv(&mut bytes).unwrap();
                if number % 4 != 0 {
                    relay.send_to(&bytes, server_address).unwrap();
                    relay.send_to(&bytes, server_address).unwrap();
                }
            }
        });
        let finished = Finished::default();
        let params = LoopParams {
            verify,
            ..params(64, Limit::Messages(SENT), EndMode::Announced)
        };
        let received = std::thread::scope(|scope| {
            let sink = scope.spawn(|| {
                run::run(
                    SocketLoop::Sink,
                    &mut server,
                    &params,
                    false,
                    &Side(&finished, 1),
                )
            });
            let source = SocketLoop::Source;
            run::run(source, &mut client, &params, false, &Side(&finished, 0)).unwrap();
            sink.join().unwrap().unwrap().stats
        });
        relayed.join().unwrap();
        let counts = (received.received.msgs, received.lost, received.duplicates);
        assert_eq!(counts, (SENT / 4 * 3, SENT / 4, SENT / 4 * 3), "{verify}");
    }
}

/// Sends messages, resets the connection, and announces `sent` messages later.
fn receive_until_reset(loop_kind: SocketLoop, messages: u64, sent: u64) -> Result<Measurement> {
    let [mut client, mut server] = connected_pair(SocketKind::Tcp, HOSTS[0], false);
    let finished = Finished::default();
    let params = params(100, Limit::Messages(sent), EndMode::Announced);
    std::thread::scope(|scope| {
        let result =
            scope.spawn(|| run::run(loop_kind, &mut server, &params, false, &Side(&finished, 1)));
        for number in 0..messages {
            let mut message = [0; 100];
            Payload::default().fill(&mut message, number);
            assert_eq!(client.send(&message).unwrap(), Sent::Message);
            if loop_kind == SocketLoop::Pong {
                while client.receive(&mut message).unwrap() == ReceivedMessage::Nothing {}
            }
        }
        // A reset discards what has not been sent yet.
        std::thread::sleep(Duration::from_millis(200));
        client.socket.set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        std::thread::sleep(Duration::from_millis(200));
        Side(&finished, 0).finish(sent).unwrap();
        result.join().unwrap()
    })
}

#[test]
fn reset_after_the_last_message_is_an_end() {
    for loop_kind in [SocketLoop::Sink, SocketLoop::Pong] {
        let measurement = receive_until_reset(loop_kind, 20, 20).unwrap();
        assert_eq!(measurement.stats.received.msgs, 20);
        assert_eq!(measurement.stats.verified, 2000);
    }
}

#[test]
fn reset_before_the_last_message_is_the_reported_error() {
    let error = receive_until_reset(SocketLoop::Sink, 19, 20).unwrap_err();
    assert_eq!(error.kind(), Kind::Device);
    assert!(error.to_string().contains("reset by peer"), "{error}");
}

#[test]
fn a_plain_socket_receives_the_bytes_of_the_payload_file() {
    let listener = TcpListener::bind(HOSTS[0]).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut server = listener.accept().unwrap().0;
    let mut client = MessageSocket::new(client.into(), SocketKind::Tcp, false).unwrap();
    let pattern: Vec<u8> = (0..=250).collect();
    let params = LoopParams {
        verify: false,
        payload: Payload::from(&PayloadFile::new("pattern", &pattern)),
        ..params(600, Limit::Messages(3), EndMode::Announced)
    };
    let finished = Finished::default();
    Side(&finished, 1).finish(0).unwrap();
    let source = SocketLoop::Source;
    run::run(source, &mut client, &params, false, &Side(&finished, 0)).unwrap();
    drop(client);
    let mut received = Vec::new();
    server.read_to_end(&mut received).unwrap();
    let message: Vec<u8> = pattern.iter().copied().cycle().take(600).collect();
    assert_eq!(received, message.repeat(3));
}
