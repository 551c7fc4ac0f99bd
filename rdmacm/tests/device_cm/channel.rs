//! Event channels on real drivers: a channel of one identifier waited for by its descriptor, and
//! shared channels.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::ErrorKind;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::datagram::multicast::JoinAs;
use rdmacm::{
    CmEventType, ConnectParams, Connection, EventChannel, InProgress, ListenOptions, Listener,
    Resolver,
};

use crate::lab::{
    self, Endpoint, TIMEOUT, assert_no_leaks, connect, leak_checked, one_endpoint_each,
};

fn is_readable(source: &impl AsFd, timeout: u16) -> bool {
    poll(
        &mut [PollFd::new(source.as_fd(), PollFlags::POLLIN)],
        PollTimeout::from(timeout),
    )
    .expect("poll")
        == 1
}

fn listen_on(endpoint: &Endpoint, channel: &EventChannel) -> Listener {
    ListenOptions::new()
        .channel(channel)
        .bind(SocketAddr::new(endpoint.ip, 0))
        .expect("listen")
}

fn expect_disconnected(connection: &mut Connection) {
    let event = connection
        .try_event()
        .expect("check")
        .expect("an event or request");
    assert_eq!(event.event_type, CmEventType::DISCONNECTED);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn every_step_completes_without_blocking() {
    fn finish<P: InProgress>(mut step: P) -> P::Output
    where
        P::Error: std::fmt::Debug,
    {
        loop {
            if let Some(output) = step.try_finish().expect("step") {
                assert!(step.try_finish().is_err(), "already finished");
                return output;
            }
            let mut fds = [PollFd::new(step.as_fd(), PollFlags::POLLIN)];
            assert_eq!(
                poll(&mut fds, PollTimeout::from(20_000_u16)).expect("poll"),
                1
            );
        }
    }
    for endpoint in leak_checked(one_endpoint_each()) {
        let listener = endpoint.listen();
        let address = listener.local_addr();
        let (active_resources, passive_resources) = (endpoint.resources(), endpoint.resources());
        let route = finish(
            Resolver::new(address)
                .timeout(TIMEOUT)
                .start()
                .expect("start"),
        );
        let mut ready = route.with_qp(active_resources.qp()).expect("INIT");
        active_resources.receive_on(ready.qp_mut());
        // One thread handles both sides, so no call may block.
        let mut connecting = ready.start(&ConnectParams::default()).expect("start");
        assert!(connecting.try_finish().expect("no error").is_none());
        let request = lab::request(&listener);
        let ready_request = request.with_qp(passive_resources.qp()).expect("INIT");
        let accepting = ready_request
            .start(&ConnectParams::default())
            .expect("start");
        let active = finish(connecting);
        let passive = finish(accepting);
        assert_eq!(active.local_addr().port(), passive.peer_addr().port());
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_shared_channel_returns_the_key_of_each_event() {
    for endpoint in leak_checked(one_endpoint_each()) {
        let channel = EventChannel::create().expect("channel");
        let listener = listen_on(&endpoint, &channel);
        assert_eq!(channel.try_next().expect("next"), None);
        assert!(!is_readable(&channel, 0));
        let address = listener.local_addr();
        let mut clients = Vec::new();
        let mut served = Vec::new();
        thread::scope(|scope| {
            let active =
                scope.spawn(|| [0; 3].map(|_| connect(address, endpoint.resources(), b"")));
            for _ in 0..3 {
                assert!(is_readable(&channel, 20_000));
                assert_eq!(
                    channel.wait(Some(TIMEOUT)).expect("wait"),
                    Some(listener.key())
                );
                let request = listener
                    .try_request()
                    .expect("accept")
                    .expect("an event or request");
                let resources = endpoint.resources();
                let ready_request = request.with_qp(resources.qp()).expect("INIT");
                let mut passive = ready_request
                    .accept(&ConnectParams::default(), TIMEOUT)
                    .expect("accept");
                let key = passive.key();
                passive.migrate(&channel).expect("migrate");
                passive
                    .migrate(&channel)
                    .expect("migrate to the same channel");
                assert_eq!(passive.key(), key);
                served.push((passive, resources));
            }
            clients.extend(active.join().expect("clients"));
        });
        assert_eq!(
            channel.wait(Some(Duration::ZERO)).expect("wait"),
            None,
            "no event"
        );
        for index in [1, 0, 0] {
            let (mut passive, _end) = served.remove(index);
            let client = clients
                .iter_mut()
                .find(|client| client.connection.local_addr() == passive.peer_addr());
            client
                .expect("the client of the connection")
                .connection
                .disconnect()
                .expect("disconnect");
            // The key is returned until the event is taken.
            for _ in 0..2 {
                assert_eq!(
                    channel.wait(Some(TIMEOUT)).expect("wait"),
                    Some(passive.key())
                );
            }
            for (other, _) in &mut served {
                assert_eq!(
                    other.try_event().expect("check"),
                    None,
                    "an event of another connection"
                );
            }
            expect_disconnected(&mut passive);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn unread_events_migrate_with_their_identifier() {
    for endpoint in leak_checked(one_endpoint_each()) {
        let (a, b) = (
            EventChannel::create().expect("channel"),
            EventChannel::create().expect("channel"),
        );
        // An unread event in the kernel, whose migration does not wake threads that already
        // poll the new channel.
        let (active, mut passive) = endpoint.pair();
        drop(active);
        assert!(is_readable(&passive.connection, 20_000));
        thread::scope(|scope| {
            let key = passive.connection.key();
            let waiter = scope.spawn(|| a.wait(Some(TIMEOUT)).expect("wait"));
            thread::sleep(Duration::from_millis(100));
            passive.connection.migrate(&a).expect("migrate");
            assert_eq!(waiter.join().expect("waiter"), Some(key));
        });
        // An event that was read from one channel before its identifier moves to another.
        passive.connection.migrate(&b).expect("migrate");
        assert_eq!(a.try_next().expect("next"), None);
        assert_eq!(b.try_next().expect("next"), Some(passive.connection.key()));
        expect_disconnected(&mut passive.connection);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn several_threads_wait_on_one_shared_channel() {
    for endpoint in leak_checked(one_endpoint_each()) {
        let channel = EventChannel::create().expect("channel");
        let (mut first, mut one) = endpoint.pair();
        let (mut second, mut two) = endpoint.pair();
        one.connection.migrate(&channel).expect("migrate");
        two.connection.migrate(&channel).expect("migrate");
        let started = Instant::now();
        thread::scope(|scope| {
            let threads = [
                scope.spawn(|| one.expect_disconnected()),
                scope.spawn(|| two.expect_disconnected()),
            ];
            thread::sleep(Duration::from_millis(50));
            second.connection.disconnect().expect("disconnect");
            first.connection.disconnect().expect("disconnect");
            for thread in threads {
                thread.join().expect("an event");
            }
        });
        assert!(started.elapsed() < TIMEOUT);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn channels_and_identifiers_can_be_dropped_in_any_order() {
    for endpoint in one_endpoint_each() {
        let unread_request = |listener: &Listener| {
            let route = Resolver::new(listener.local_addr())
                .timeout(TIMEOUT)
                .resolve()
                .expect("resolve");
            let resources = endpoint.resources();
            let connecting = route
                .with_qp(resources.qp())
                .expect("INIT")
                .start(&ConnectParams::default())
                .expect("start");
            (connecting, resources)
        };
        assert_no_leaks(&endpoint, || {
            // The channel is dropped first.
            let channel = EventChannel::create().expect("channel");
            let (mut active, mut passive) = endpoint.pair();
            passive.connection.migrate(&channel).expect("migrate");
            drop(channel);
            active.connection.disconnect().expect("disconnect");
            passive.expect_disconnected();
            // A connection with an event that was read from the channel, or not.
            for read in [true, false] {
                let channel = EventChannel::create().expect("channel");
                let (active, mut passive) = endpoint.pair();
                passive.connection.migrate(&channel).expect("migrate");
                drop(active);
                assert!(is_readable(&channel, 20_000));
                if read {
                    assert_eq!(
                        channel.wait(Some(TIMEOUT)).expect("wait"),
                        Some(passive.connection.key())
                    );
                }
                drop(passive);
                assert_eq!(channel.try_next().expect("next"), None);
            }
        });
        assert_no_leaks(&endpoint, || {
            // A listener with a connect request that was read from the channel, or not.
            for read in [true, false] {
                let channel = EventChannel::create().expect("channel");
                let listener = listen_on(&endpoint, &channel);
                let (connecting, _end) = unread_request(&listener);
                assert!(is_readable(&channel, 20_000));
                if read {
                    assert_eq!(
                        channel.wait(Some(TIMEOUT)).expect("wait"),
                        Some(listener.key())
                    );
                }
                drop(listener);
                assert_eq!(channel.try_next().expect("next"), None);
                let error = connecting
                    .wait(Some(TIMEOUT))
                    .map(drop)
                    .expect_err("the request was rejected");
                assert_eq!(error.error().kind(), ErrorKind::Disconnected, "{error}");
            }
        });
    }
}

/// A shared channel reads every request from the kernel, so the kernel's backlog is always empty.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_shared_channel_rejects_requests_beyond_the_backlog() {
    const BACKLOG: u16 = 2;
    for endpoint in leak_checked(one_endpoint_each()) {
        let channel = EventChannel::create().expect("channel");
        let listener = ListenOptions::new()
            .backlog(BACKLOG)
            .channel(&channel)
            .bind(SocketAddr::new(endpoint.ip, 0))
            .expect("listen");
        // Reading the channel at once keeps the kernel from rejecting requests itself.
        let read_channel = |time| {
            let deadline = Instant::now() + time;
            while Instant::now() < deadline {
                channel.try_next().expect("next");
                thread::sleep(Duration::from_millis(1));
            }
        };
        let request = || {
            let route = Resolver::new(listener.local_addr())
                .timeout(TIMEOUT)
                .resolve()
                .expect("resolve");
            let resources = endpoint.resources();
            let ready = route.with_qp(resources.qp()).expect("INIT");
            let connecting = ready.start(&ConnectParams::default()).expect("start");
            read_channel(Duration::from_millis(50));
            (connecting, resources)
        };
        let mut clients: Vec<_> = (0..6).map(|_| request()).collect();
        read_channel(Duration::from_millis(300));
        let accept_waiting = || {
            let mut accepted = Vec::new();
            while let Some(request) = listener.try_request().expect("accept") {
                let resources = endpoint.resources();
                let ready = request.with_qp(resources.qp()).expect("INIT");
                let accepting = ready.start(&ConnectParams::default()).expect("accept");
                accepted.push((accepting, resources));
            }
            accepted
        };
        let mut accepted = accept_waiting();
        assert_eq!(accepted.len(), usize::from(BACKLOG), "{}", endpoint.name());
        // Accepting makes room for further requests.
        clients.push(request());
        accepted.extend(accept_waiting());
        assert_eq!(accepted.len(), usize::from(BACKLOG) + 1);
        let mut connections = Vec::new();
        for (number, (connecting, _)) in clients.iter_mut().enumerate() {
            let outcome = loop {
                match connecting.try_finish() {
                    Ok(None) => thread::sleep(Duration::from_millis(1)),
                    Ok(Some(connection)) => break Ok(connection),
                    Err(error) => break Err(error),
                }
            };
            match (number, outcome) {
                (0 | 1 | 6, connection) => connections.push(connection.expect("accepted")),
                (_, outcome) => {
                    let error = outcome.map(drop).expect_err("rejected");
                    assert_eq!(error.error().kind(), ErrorKind::Disconnected, "{error}");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_membership_migrates_to_a_shared_channel() {
    for endpoint in one_endpoint_each()
        .into_iter()
        .filter(Endpoint::has_datagrams)
    {
        assert_no_leaks(&endpoint, || {
            let channel = EventChannel::create().expect("channel");
            let group = SocketAddr::new(IpAddr::from([239, 9, 7, 1]), 0);
            let mut member = Resolver::new(group)
                .source(endpoint.ip)
                .join(JoinAs::FULL_MEMBER)
                .expect("join");
            member.migrate(&channel).expect("migrate");
            assert_eq!(member.try_event().expect("no error"), None);
            assert_eq!(
                member
                    .wait_event(Some(Duration::from_millis(20)))
                    .expect("no error"),
                None
            );
            member.leave().expect("leave");
            assert_eq!(channel.try_next().expect("next"), None);
        });
    }
}
