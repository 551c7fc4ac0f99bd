//! Connecting on real drivers, with both sides in one process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{QpState, device::TransportType, wr};
use rdmacm::{ConnectParams, Listener, PrivateDataLimits, Resolver};

use crate::lab::{self, TIMEOUT, accept, connect, endpoints};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn private_data_reaches_both_sides_up_to_its_limits() {
    for endpoint in endpoints() {
        let limits = PrivateDataLimits::new(endpoint.context.device().transport());
        let full = |len: usize| {
            (0..len)
                .map(|index| u8::try_from(index).expect("below 256") | 1)
                .collect::<Vec<u8>>()
        };
        for (request, reply) in [
            (b"from the client".to_vec(), b"from the server".to_vec()),
            (full(limits.request), full(limits.reply)),
        ] {
            let listener = endpoint.listen();
            let address = listener.local_addr();
            let (server_received, client_received) = thread::scope(|scope| {
                let passive = scope.spawn(|| {
                    accept(&listener, endpoint.resources(), &reply)
                        .connection
                        .private_data()
                        .to_vec()
                });
                let active = connect(address, endpoint.resources(), &request)
                    .connection
                    .private_data()
                    .to_vec();
                (passive.join().expect("passive side"), active)
            });
            for (sent, received, limit) in [
                (request, server_received, limits.request),
                (reply, client_received, limits.reply),
            ] {
                assert_eq!(received[..sent.len()], sent);
                let is_padded = !endpoint.is_iwarp();
                assert_eq!(received.len(), if is_padded { limit } else { sent.len() });
                assert!(received[sent.len()..].iter().all(|&byte| byte == 0));
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messages_are_exchanged_and_buffers_returned() {
    for endpoint in endpoints() {
        let (mut a, mut b) = endpoint.pair();
        for side in [&a, &b] {
            assert_eq!(side.connection.qp().state().expect("state"), QpState::RTS);
            assert_eq!(side.connection.device_name(), endpoint.name());
            assert_eq!(side.connection.local_addr().ip(), endpoint.ip);
        }
        assert_eq!(
            a.connection.local_addr().port(),
            b.connection.peer_addr().port()
        );
        for round in 0..20 {
            let text = format!("round {round}");
            a.send(text.as_bytes());
            a.retire().check().expect("sent");
            let retired = b.retire();
            retired.check().expect("received");
            assert_eq!(
                retired.into_buf().expect("the posted buffer")[..],
                *text.as_bytes()
            );
            b.receive();
            std::mem::swap(&mut a, &mut b);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_early_message_finds_the_receive_posted_before_connecting() {
    for endpoint in endpoints() {
        for _ in 0..10 {
            let listener = endpoint.listen();
            let address = listener.local_addr();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut passive = accept(&listener, endpoint.resources(), b"");
                    let mut remaining = 2;
                    if passive.connection.transport() == TransportType::IWARP {
                        // The active side must send first.
                        passive.retire().check().expect("received");
                        remaining = 1;
                    }
                    passive.send(b"from the passive side");
                    for _ in 0..remaining {
                        passive.retire().check().expect("success");
                    }
                    passive.expect_disconnected();
                });
                let mut active = connect(address, endpoint.resources(), b"");
                active.send(b"from the active side");
                for _ in 0..2 {
                    let retired = active.wait_for_effect(lab::Peer::retire_within);
                    retired.check().expect("success");
                }
            });
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_connection_outlives_its_listener() {
    for endpoint in endpoints() {
        let (mut a, mut b) = endpoint.pair();
        a.send(b"still connected");
        a.retire().check().expect("sent");
        b.retire().check().expect("received");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_wildcard_listener_reports_the_device_of_each_request() {
    let endpoints = endpoints();
    for any in [
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ] {
        let listener = Listener::bind(SocketAddr::new(any, 0), 16).expect("listen");
        let port = listener.local_addr().port();
        assert_ne!(port, 0);
        for endpoint in endpoints
            .iter()
            .filter(|endpoint| endpoint.ip.is_ipv4() == any.is_ipv4())
        {
            thread::scope(|scope| {
                let passive = scope.spawn(|| accept(&listener, endpoint.resources(), b""));
                let active = connect(
                    SocketAddr::new(endpoint.ip, port),
                    endpoint.resources(),
                    b"",
                );
                let passive = passive.join().expect("passive side");
                assert_eq!(passive.connection.local_addr().ip(), endpoint.ip);
                assert_eq!(
                    active.connection.peer_addr(),
                    SocketAddr::new(endpoint.ip, port)
                );
            });
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn several_threads_accept_from_one_listener() {
    for endpoint in endpoints() {
        let listener = endpoint.listen();
        let address = listener.local_addr();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        let mut passive = accept(&listener, endpoint.resources(), b"");
                        passive.retire().check().expect("received");
                        passive.send(b"pong");
                        passive.retire().check().expect("sent");
                        passive.expect_disconnected();
                    }
                });
            }
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        let mut active = connect(address, endpoint.resources(), b"");
                        active.send(b"ping");
                        for _ in 0..2 {
                            let retired = active.wait_for_effect(lab::Peer::retire_within);
                            retired.check().expect("success");
                        }
                    }
                });
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn queue_pairs_on_separate_contexts_connect() {
    for endpoint in endpoints() {
        let listener = endpoint.listen();
        let address = listener.local_addr();
        thread::scope(|scope| {
            let passive = scope.spawn(|| {
                let request = lab::request(&listener);
                let context = request.context().expect("open");
                accept_on(&lab::Resources::new(&context), request)
            });
            let route = Resolver::new(address)
                .source(endpoint.ip)
                .resolve()
                .expect("resolve");
            let resources = lab::Resources::new(&route.context().expect("open"));
            let ready = route.with_qp(resources.qp()).expect("INIT");
            let connection = ready
                .connect(&ConnectParams::default(), TIMEOUT)
                .expect("connect");
            drop(passive.join().expect("passive side"));
            drop(connection);
        });
    }
}

fn accept_on(resources: &lab::Resources, request: rdmacm::ConnectRequest) -> rdmacm::Connection {
    let ready_request = request.with_qp(resources.qp()).expect("INIT");
    ready_request
        .accept(&ConnectParams::default(), TIMEOUT)
        .expect("accept")
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rnr_retries_wait_milliseconds_not_seconds() {
    for endpoint in endpoints().iter().filter(|endpoint| !endpoint.is_iwarp()) {
        // Takes the shortest of several times, because a busy machine can delay any of them. The
        // default of rdma_cm delays all of them by 0.7 s.
        let mut shortest = Duration::MAX;
        for _ in 0..10 {
            let (mut a, mut b) = endpoint.pair();
            a.send(b"has a receive");
            a.send(b"has no receive yet");
            a.retire().check().expect("the first");
            b.retire().check().expect("the first");
            assert!(
                a.retire_within(Duration::from_millis(20)).is_none(),
                "the second has no receive yet"
            );
            b.receive();
            let posted = Instant::now();
            a.retire().check().expect("the second");
            b.retire().check().expect("the second");
            shortest = shortest.min(posted.elapsed());
            if shortest < Duration::from_millis(400) {
                break;
            }
        }
        assert!(shortest < Duration::from_millis(400), "{shortest:?}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn events_make_the_descriptor_readable() {
    use std::os::fd::AsFd;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    for endpoint in endpoints() {
        let (mut a, b) = endpoint.pair();
        let (drop_peer, wait) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                wait.recv().expect("a signal");
                drop(b);
            });
            drop_peer.send(()).expect("the thread waits");
            let mut fds = [PollFd::new(a.connection.as_fd(), PollFlags::POLLIN)];
            assert_eq!(
                poll(&mut fds, PollTimeout::from(20_000_u16)).expect("poll"),
                1
            );
        });
        let event = a.connection.try_event().expect("check").expect("an event");
        assert_eq!(event.event_type, rdmacm::CmEventType::DISCONNECTED);
        assert!(matches!(
            a.connection.qp_mut().post_send(wr::send(wr::Empty)),
            Ok(()) | Err(_)
        ));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn accept_returns_none_after_its_timeout() {
    for endpoint in endpoints() {
        let listener = endpoint.listen();
        let started = Instant::now();
        assert!(
            listener
                .next_request(Some(Duration::from_millis(100)))
                .expect("accept")
                .is_none()
        );
        assert!((Duration::from_millis(100)..Duration::from_secs(3)).contains(&started.elapsed()));
        assert!(listener.try_request().expect("accept").is_none());
    }
}
