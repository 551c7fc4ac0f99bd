//! Connecting on real drivers: both ends in one process.

mod lab;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{QpState, device::TransportType, wr};
use lab::{PATIENCE, accept, connect, places};
use rdmacm::{ConnectParams, Listener, PrivateDataLimits, Resolver};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn private_data_travels_both_ways_up_to_its_limits() {
    for place in places() {
        let limits = PrivateDataLimits::new(place.context.device().transport());
        let full = |len: usize| {
            (0..len)
                .map(|at| u8::try_from(at).expect("below 256") | 1)
                .collect::<Vec<u8>>()
        };
        for (request, reply) in [
            (b"from the client".to_vec(), b"from the server".to_vec()),
            (full(limits.request), full(limits.reply)),
        ] {
            let listener = place.listen();
            let address = listener.local_addr();
            let (seen_by_server, seen_by_client) = thread::scope(|scope| {
                let passive = scope.spawn(|| {
                    accept(&listener, place.end(), &reply)
                        .connection
                        .private_data()
                        .to_vec()
                });
                let active = connect(address, place.end(), &request)
                    .connection
                    .private_data()
                    .to_vec();
                (passive.join().expect("passive side"), active)
            });
            for (sent, seen, limit) in [
                (request, seen_by_server, limits.request),
                (reply, seen_by_client, limits.reply),
            ] {
                assert_eq!(seen[..sent.len()], sent);
                let is_padded = !place.is_iwarp();
                assert_eq!(seen.len(), if is_padded { limit } else { sent.len() });
                assert!(seen[sent.len()..].iter().all(|&byte| byte == 0));
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messages_go_both_ways_and_buffers_come_back() {
    for place in places() {
        let (mut a, mut b) = place.pair();
        for side in [&a, &b] {
            assert_eq!(side.connection.qp().state().expect("state"), QpState::RTS);
            assert_eq!(side.connection.device_name(), place.name());
            assert_eq!(side.connection.local_addr().ip(), place.ip);
        }
        assert_eq!(
            a.connection.local_addr().port(),
            b.connection.peer_addr().port()
        );
        for round in 0..20 {
            let text = format!("round {round}");
            a.send(text.as_bytes());
            a.retire().ok().expect("sent");
            let got = b.retire();
            got.ok().expect("received");
            assert_eq!(
                got.into_buf().expect("posted with one")[..],
                *text.as_bytes()
            );
            b.receive();
            std::mem::swap(&mut a, &mut b);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_message_sent_at_once_finds_the_receive_posted_before_connecting() {
    for place in places() {
        for _ in 0..10 {
            let listener = place.listen();
            let address = listener.local_addr();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut passive = accept(&listener, place.end(), b"");
                    let mut left = 2;
                    if passive.connection.transport() == TransportType::IWARP {
                        passive.retire().ok().expect("received"); // there the active side speaks first
                        left = 1;
                    }
                    passive.send(b"from the passive side");
                    for _ in 0..left {
                        passive.retire().ok().expect("success");
                    }
                    passive.expect_disconnected();
                });
                let mut active = connect(address, place.end(), b"");
                active.send(b"from the active side");
                for _ in 0..2 {
                    active.retire().ok().expect("success");
                }
            });
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_connection_outlives_its_listener() {
    for place in places() {
        let (mut a, mut b) = place.pair();
        a.send(b"still here");
        a.retire().ok().expect("sent");
        b.retire().ok().expect("received");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_listener_for_all_addresses_tells_which_device_was_asked() {
    let places = places();
    for any in [
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ] {
        let listener = Listener::bind(SocketAddr::new(any, 0), 16).expect("listen");
        let port = listener.local_addr().port();
        assert_ne!(port, 0);
        for place in places
            .iter()
            .filter(|place| place.ip.is_ipv4() == any.is_ipv4())
        {
            thread::scope(|scope| {
                let passive = scope.spawn(|| accept(&listener, place.end(), b""));
                let active = connect(SocketAddr::new(place.ip, port), place.end(), b"");
                let passive = passive.join().expect("passive side");
                assert_eq!(passive.connection.local_addr().ip(), place.ip);
                assert_eq!(
                    active.connection.peer_addr(),
                    SocketAddr::new(place.ip, port)
                );
            });
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn several_threads_accept_from_one_listener() {
    for place in places() {
        let listener = place.listen();
        let address = listener.local_addr();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        let mut passive = accept(&listener, place.end(), b"");
                        passive.retire().ok().expect("received");
                        passive.send(b"pong");
                        passive.retire().ok().expect("sent");
                        passive.expect_disconnected();
                    }
                });
            }
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        let mut active = connect(address, place.end(), b"");
                        active.send(b"ping");
                        for _ in 0..2 {
                            active.retire().ok().expect("success");
                        }
                    }
                });
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_queue_pair_on_an_opening_of_its_own_connects() {
    for place in places() {
        let listener = place.listen();
        let address = listener.local_addr();
        thread::scope(|scope| {
            let passive = scope.spawn(|| {
                let request = listener
                    .accept(Some(PATIENCE))
                    .expect("accept")
                    .expect("in time");
                let context = request.context().expect("open");
                accept_on(&lab::End::new(&context), request)
            });
            let route = Resolver::new(address)
                .source(place.ip)
                .resolve()
                .expect("resolve");
            let end = lab::End::new(&route.context().expect("open"));
            let ready = route.with_qp(end.qp()).expect("INIT");
            let connection = ready
                .connect(&ConnectParams::default(), PATIENCE)
                .expect("connect");
            drop(passive.join().expect("passive side"));
            drop(connection);
        });
    }
}

fn accept_on(end: &lab::End, request: rdmacm::ConnectRequest) -> rdmacm::Connection {
    let pending = request.with_qp(end.qp()).expect("INIT");
    pending
        .accept(&ConnectParams::default(), PATIENCE)
        .expect("accept")
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_sender_waits_for_a_late_receive_in_milliseconds_not_seconds() {
    for place in places().iter().filter(|place| !place.is_iwarp()) {
        // The soonest of a few: a busy machine can delay any of them, and rdma_cm's own setting
        // delays all by 0.7 s.
        let mut soonest = Duration::MAX;
        for _ in 0..10 {
            let (mut a, mut b) = place.pair();
            a.send(b"finds the receive");
            a.send(b"finds none yet");
            a.retire().ok().expect("the first");
            b.retire().ok().expect("the first");
            assert!(
                a.retire_within(Duration::from_millis(20)).is_none(),
                "nobody has received the second"
            );
            b.receive();
            let posted = Instant::now();
            a.retire().ok().expect("the second");
            b.retire().ok().expect("the second");
            soonest = soonest.min(posted.elapsed());
            if soonest < Duration::from_millis(400) {
                break;
            }
        }
        assert!(soonest < Duration::from_millis(400), "{soonest:?}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn events_wake_a_waiter_through_the_descriptor() {
    use std::os::fd::AsFd;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    for place in places() {
        let (mut a, b) = place.pair();
        let (gone, wait) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                wait.recv().expect("told");
                drop(b);
            });
            gone.send(()).expect("listening");
            let mut fds = [PollFd::new(a.connection.as_fd(), PollFlags::POLLIN)];
            assert_eq!(
                poll(&mut fds, PollTimeout::from(20_000_u16)).expect("poll"),
                1
            );
        });
        let event = a
            .connection
            .check_event()
            .expect("check")
            .expect("there already");
        assert_eq!(event.event_type, rdmacm::CmEventType::DISCONNECTED);
        assert!(matches!(
            a.connection.qp_mut().post_send(wr::send(wr::Empty)),
            Ok(()) | Err(_)
        ));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn waiting_for_nobody_ends_in_time() {
    for place in places() {
        let listener = place.listen();
        let started = Instant::now();
        assert!(
            listener
                .accept(Some(Duration::from_millis(100)))
                .expect("accept")
                .is_none()
        );
        assert!((Duration::from_millis(100)..Duration::from_secs(3)).contains(&started.elapsed()));
        assert!(listener.try_accept().expect("accept").is_none());
    }
}
