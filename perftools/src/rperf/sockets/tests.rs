//! The loops over real sockets of this machine, with a peer within the process.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::message_socket::MessageSocket;
use super::open::{self, BoundSocket, ClientIdentity};
use super::run::{self, LoopKind};
use super::{EndMode, LoopParams, SocketKind};
use crate::common::error::{Error, Result};
use crate::rperf::engine::{Measurement, Peer};
use crate::rperf::spec::Limit;

/// What two threads tell each other; the number is what was sent, plus one.
#[derive(Default)]
struct Told([AtomicU64; 2]);

struct Side<'a>(&'a Told, usize);

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

fn lines(kind: SocketKind, host: &str, poll: bool) -> [MessageSocket; 2] {
    let address: SocketAddr = host.parse().unwrap();
    let server = BoundSocket::open(kind, address, 0).unwrap();
    let there = server.address();
    let (client, server) = if kind.is_datagram() {
        (
            BoundSocket::open(kind, address, 0)
                .unwrap()
                .join(there)
                .unwrap(),
            server.into_socket(),
        )
    } else {
        let client =
            open::connect(kind, address, there, Some(7), 0, Duration::from_secs(2)).unwrap();
        (
            client,
            server
                .accept(ClientIdentity::Token(7), Duration::from_secs(2), &|| false)
                .unwrap(),
        )
    };
    [client, server].map(|socket| MessageSocket::new(socket, kind, poll).unwrap())
}

fn both(
    kind: SocketKind,
    host: &str,
    latency: bool,
    plan: &LoopParams,
    poll: bool,
) -> [Measurement; 2] {
    let [mut client, mut server] = lines(kind, host, poll);
    let told = Told::default();
    let parts = if latency {
        (LoopKind::Ping, LoopKind::Pong)
    } else {
        (LoopKind::Source, LoopKind::Sink)
    };
    std::thread::scope(|scope| {
        let serving =
            scope.spawn(|| run::run(parts.1, &mut server, plan, poll, &Side(&told, 1)).unwrap());
        let mine = run::run(parts.0, &mut client, plan, poll, &Side(&told, 0)).unwrap();
        [mine, serving.join().unwrap()]
    })
}

fn plan(size: usize, limit: Limit, end_mode: EndMode) -> LoopParams {
    LoopParams {
        size,
        limit,
        verify: true,
        access: false,
        timeout: Duration::from_secs(5),
        end_mode,
    }
}

#[test]
fn every_message_of_a_stream_arrives_and_is_checked() {
    for host in HOSTS {
        for (size, n) in [(1, 3000), (4097, 500), (1 << 20, 30)] {
            let [client, server] = both(
                SocketKind::Tcp,
                host,
                false,
                &plan(size, Limit::Messages(n), EndMode::Announced),
                false,
            );
            assert_eq!((client.stats.sent.msgs, server.stats.received.msgs), (n, n));
            assert_eq!(server.stats.verified, n * size as u64);
        }
    }
}

#[test]
fn latency_counts_each_round_trip_both_ways() {
    for host in HOSTS {
        for kind in [SocketKind::Tcp, SocketKind::Udp] {
            for poll in [false, true] {
                let [client, server] = both(
                    kind,
                    host,
                    true,
                    &plan(100, Limit::Messages(300), EndMode::Announced),
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
fn datagrams_that_arrive_are_whole_whatever_is_lost() {
    for host in HOSTS {
        for poll in [false, true] {
            let limit = Limit::Time(Duration::from_millis(200));
            let [client, server] = both(
                SocketKind::Udp,
                host,
                false,
                &plan(1000, limit, EndMode::Announced),
                poll,
            );
            let (sent, received) = (client.stats.sent.msgs, server.stats.received.msgs);
            assert!(received > 0 && received <= sent + 1, "{received} of {sent}");
            assert!(server.stats.verified >= received * 1000);
        }
    }
}

#[test]
fn a_test_by_time_ends_and_leaves_nothing_under_way() {
    for latency in [false, true] {
        let limit = Limit::Time(Duration::from_millis(200));
        let [client, server] = both(
            SocketKind::Tcp,
            HOSTS[0],
            latency,
            &plan(64 << 10, limit, EndMode::Announced),
            false,
        );
        assert!(client.stats.nanos >= 200_000_000);
        assert!(server.stats.received.msgs > 0);
    }
}

#[test]
fn by_the_clock_each_end_stops_alone() {
    for (kind, latency) in [
        (SocketKind::Tcp, false),
        (SocketKind::Tcp, true),
        (SocketKind::Udp, false),
        (SocketKind::Udp, true),
    ] {
        let limit = Limit::Time(Duration::from_millis(200));
        let [client, server] = both(
            kind,
            HOSTS[1],
            latency,
            &plan(512, limit, EndMode::Clock),
            false,
        );
        assert!(
            client.stats.sent.msgs > 0 && server.stats.received.msgs > 0,
            "{kind:?}"
        );
    }
}

#[test]
fn who_does_not_say_the_token_is_turned_away() {
    let address: SocketAddr = HOSTS[0].parse().unwrap();
    let server = BoundSocket::open(SocketKind::Tcp, address, 0).unwrap();
    let there = server.address();
    std::thread::scope(|scope| {
        let taken = scope.spawn(|| {
            server
                .accept(ClientIdentity::Token(7), Duration::from_secs(5), &|| false)
                .unwrap()
        });
        let _stranger = open::connect(
            SocketKind::Tcp,
            address,
            there,
            Some(8),
            0,
            Duration::from_secs(2),
        )
        .unwrap();
        let client = open::connect(
            SocketKind::Tcp,
            address,
            there,
            Some(7),
            0,
            Duration::from_secs(2),
        )
        .unwrap();
        let taken = taken.join().unwrap();
        assert_eq!(
            taken.peer_addr().unwrap().as_socket(),
            client.local_addr().unwrap().as_socket()
        );
    });
}

#[test]
fn a_client_that_never_comes_or_is_gone_ends_the_wait() {
    let place = || BoundSocket::open(SocketKind::Tcp, HOSTS[0].parse().unwrap(), 0).unwrap();
    let text = place()
        .accept(
            ClientIdentity::Token(1),
            Duration::from_millis(200),
            &|| false,
        )
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("did not connect by TCP within 200 ms"),
        "{text}"
    );
    let text = place()
        .accept(ClientIdentity::Token(1), Duration::from_secs(60), &|| true)
        .unwrap_err()
        .to_string();
    assert!(text.contains("went away"), "{text}");
}

#[test]
fn damage_is_found() {
    let [client, mut server] = lines(SocketKind::Udp, HOSTS[0], false);
    client.socket().send(&[9; 64]).unwrap();
    let plan = plan(64, Limit::Messages(1), EndMode::Clock);
    let told = Told::default();
    let text = run::run(LoopKind::Sink, &mut server, &plan, false, &Side(&told, 1))
        .unwrap_err()
        .to_string();
    assert!(text.contains("damaged"), "{text}");
}

#[test]
fn a_kernel_without_the_protocol_says_how_to_load_it() {
    for (kind, says) in [
        (SocketKind::Sctp, "modprobe sctp"),
        (SocketKind::Rds, "modprobe rds"),
    ] {
        match BoundSocket::open(kind, HOSTS[0].parse().unwrap(), 0) {
            Ok(place) => assert_ne!(place.address().port(), 0),
            Err(error) => assert!(
                error.to_string().contains(says) || kind == SocketKind::Rds,
                "{error}"
            ),
        }
    }
}
