//! Event channels on real drivers: one of one's own, by its descriptor, and one for many.

mod lab;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::ErrorKind;
use lab::{PATIENCE, Place, connect, leaves_nothing, one_place_each};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::datagram::multicast::JoinAs;
use rdmacm::{
    CmEventType, ConnectParams, Connection, EventChannel, InProgress, ListenOptions, Listener,
    Messenger, MessengerOptions, Resolver,
};

fn is_readable(what: &impl AsFd, timeout: u16) -> bool {
    poll(
        &mut [PollFd::new(what.as_fd(), PollFlags::POLLIN)],
        PollTimeout::from(timeout),
    )
    .expect("poll")
        == 1
}

fn listen_on(place: &Place, channel: &EventChannel) -> Listener {
    ListenOptions::new()
        .channel(channel)
        .bind(SocketAddr::new(place.ip, 0))
        .expect("listen")
}

fn expect_disconnected(connection: &mut Connection) {
    let event = connection
        .check_event()
        .expect("check")
        .expect("it was told to have one");
    assert_eq!(event.event_type, CmEventType::DISCONNECTED);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn every_step_goes_without_blocking_by_its_descriptor() {
    fn finish<P: InProgress>(mut step: P) -> P::Output
    where
        P::Error: std::fmt::Debug,
    {
        loop {
            if let Some(output) = step.try_finish().expect("step") {
                assert!(step.try_finish().is_err(), "it is over");
                return output;
            }
            let mut fds = [PollFd::new(step.as_fd(), PollFlags::POLLIN)];
            assert_eq!(
                poll(&mut fds, PollTimeout::from(20_000_u16)).expect("poll"),
                1
            );
        }
    }
    for place in one_place_each() {
        leaves_nothing(&place, || {
            let listener = place.listen();
            let address = listener.local_addr();
            let (active_end, passive_end) = (place.end(), place.end());
            let route = finish(
                Resolver::new(address)
                    .timeout(PATIENCE)
                    .start()
                    .expect("start"),
            );
            let mut ready = route.with_qp(active_end.qp()).expect("INIT");
            active_end.receive_on(ready.qp_mut());
            // Both ends by one thread: nothing may block.
            let mut connecting = ready.start(&ConnectParams::default()).expect("start");
            assert!(connecting.try_finish().expect("early").is_none());
            let request = listener
                .accept(Some(PATIENCE))
                .expect("accept")
                .expect("in time");
            let pending = request.with_qp(passive_end.qp()).expect("INIT");
            let accepting = pending.start(&ConnectParams::default()).expect("start");
            let active = finish(connecting);
            let passive = finish(accepting);
            assert_eq!(active.local_addr().port(), passive.peer_addr().port());
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn one_channel_tells_whose_event_it_is() {
    for place in one_place_each() {
        leaves_nothing(&place, || {
            let channel = EventChannel::create().expect("channel");
            let listener = listen_on(&place, &channel);
            assert_eq!(channel.try_next().expect("next"), None);
            assert!(!is_readable(&channel, 0));
            let address = listener.local_addr();
            let mut clients = Vec::new();
            let mut served = Vec::new();
            thread::scope(|scope| {
                let active = scope.spawn(|| [0; 3].map(|_| connect(address, place.end(), b"")));
                for _ in 0..3 {
                    assert!(is_readable(&channel, 20_000));
                    assert_eq!(
                        channel.wait(Some(PATIENCE)).expect("wait"),
                        Some(listener.key())
                    );
                    let request = listener
                        .try_accept()
                        .expect("accept")
                        .expect("it was told to have one");
                    let end = place.end();
                    let pending = request.with_qp(end.qp()).expect("INIT");
                    let mut passive = pending
                        .accept(&ConnectParams::default(), PATIENCE)
                        .expect("accept");
                    let key = passive.key();
                    passive.migrate(&channel).expect("migrate");
                    passive.migrate(&channel).expect("where it is already");
                    assert_eq!(passive.key(), key);
                    served.push((passive, end));
                }
                clients.extend(active.join().expect("clients"));
            });
            assert_eq!(
                channel.wait(Some(Duration::ZERO)).expect("wait"),
                None,
                "nothing has happened"
            );
            for at in [1, 0, 0] {
                let (mut passive, _end) = served.remove(at);
                let client = clients
                    .iter_mut()
                    .find(|client| client.connection.local_addr() == passive.peer_addr());
                client
                    .expect("its client")
                    .connection
                    .disconnect()
                    .expect("disconnect");
                // It is told as long as it has not taken it.
                for _ in 0..2 {
                    assert_eq!(
                        channel.wait(Some(PATIENCE)).expect("wait"),
                        Some(passive.key())
                    );
                }
                for (other, _) in &mut served {
                    assert_eq!(other.check_event().expect("check"), None, "not its event");
                }
                expect_disconnected(&mut passive);
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn events_that_nobody_took_move_with_their_identifier() {
    for place in one_place_each() {
        leaves_nothing(&place, || {
            let (a, b) = (
                EventChannel::create().expect("channel"),
                EventChannel::create().expect("channel"),
            );
            // In the kernel, where it wakes nobody who sleeps on the new channel already.
            let (active, mut passive) = place.pair();
            drop(active);
            assert!(is_readable(&passive.connection, 20_000));
            thread::scope(|scope| {
                let key = passive.connection.key();
                let waiter = scope.spawn(|| a.wait(Some(PATIENCE)).expect("wait"));
                thread::sleep(Duration::from_millis(100));
                passive.connection.migrate(&a).expect("migrate");
                assert_eq!(waiter.join().expect("waiter"), Some(key));
            });
            // Taken off one channel for somebody who moves to the other before he looks.
            passive.connection.migrate(&b).expect("migrate");
            assert_eq!(a.try_next().expect("next"), None);
            assert_eq!(b.try_next().expect("next"), Some(passive.connection.key()));
            expect_disconnected(&mut passive.connection);
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn several_threads_wait_on_one_channel_each_for_its_own() {
    for place in one_place_each() {
        leaves_nothing(&place, || {
            let channel = EventChannel::create().expect("channel");
            let (mut first, mut one) = place.pair();
            let (mut second, mut two) = place.pair();
            one.connection.migrate(&channel).expect("migrate");
            two.connection.migrate(&channel).expect("migrate");
            let begun = Instant::now();
            thread::scope(|scope| {
                let threads = [
                    scope.spawn(|| one.expect_disconnected()),
                    scope.spawn(|| two.expect_disconnected()),
                ];
                thread::sleep(Duration::from_millis(50));
                second.connection.disconnect().expect("disconnect");
                first.connection.disconnect().expect("disconnect");
                for thread in threads {
                    thread.join().expect("told");
                }
            });
            assert!(begun.elapsed() < PATIENCE);
            // A messenger whose connection was moved hears of its end, whoever takes it off the
            // channel.
            let listener = listen_on(&place, &channel);
            let address = listener.local_addr();
            thread::scope(|scope| {
                let client = scope.spawn(|| {
                    let mut client =
                        Messenger::connect(address, &MessengerOptions::default(), PATIENCE)
                            .expect("connect");
                    client.send(b"one", PATIENCE).expect("send");
                    client.flush(PATIENCE).expect("flush");
                    client
                });
                let request = listener
                    .accept(Some(PATIENCE))
                    .expect("accept")
                    .expect("in time");
                let mut server = Messenger::accept(request, &MessengerOptions::default(), PATIENCE)
                    .expect("accept");
                server.connection_mut().migrate(&channel).expect("migrate");
                assert_eq!(
                    server.recv(PATIENCE).expect("receive").as_deref(),
                    Some(&b"one"[..])
                );
                // It leaves only now: receiving takes what is on the channel already, and then
                // nothing wakes who waits there.
                drop(client.join().expect("client"));
                while channel
                    .wait(Some(PATIENCE))
                    .expect("wait")
                    .expect("an event in time")
                    != server.connection().key()
                {}
                assert!(server.recv(PATIENCE).expect("the end").is_none());
            });
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_channel_and_what_is_on_it_go_in_any_order() {
    for place in one_place_each() {
        let unread_request = |listener: &Listener| {
            let route = Resolver::new(listener.local_addr())
                .timeout(PATIENCE)
                .resolve()
                .expect("resolve");
            let end = place.end();
            let connecting = route
                .with_qp(end.qp())
                .expect("INIT")
                .start(&ConnectParams::default())
                .expect("start");
            (connecting, end)
        };
        leaves_nothing(&place, || {
            // The channel first.
            let channel = EventChannel::create().expect("channel");
            let (mut active, mut passive) = place.pair();
            passive.connection.migrate(&channel).expect("migrate");
            drop(channel);
            active.connection.disconnect().expect("disconnect");
            passive.expect_disconnected();
            // A connection whose event lies on the channel, taken off it and not.
            for take in [true, false] {
                let channel = EventChannel::create().expect("channel");
                let (active, mut passive) = place.pair();
                passive.connection.migrate(&channel).expect("migrate");
                drop(active);
                assert!(is_readable(&channel, 20_000));
                if take {
                    assert_eq!(
                        channel.wait(Some(PATIENCE)).expect("wait"),
                        Some(passive.connection.key())
                    );
                }
                drop(passive);
                assert_eq!(channel.try_next().expect("next"), None);
            }
        });
        lab::leaves_nothing_within(&place, Duration::from_secs(30), || {
            // A listener with a request that nobody took, off the channel and not.
            for take in [true, false] {
                let channel = EventChannel::create().expect("channel");
                let listener = listen_on(&place, &channel);
                let (connecting, _end) = unread_request(&listener);
                assert!(is_readable(&channel, 20_000));
                if take {
                    assert_eq!(
                        channel.wait(Some(PATIENCE)).expect("wait"),
                        Some(listener.key())
                    );
                }
                drop(listener);
                assert_eq!(channel.try_next().expect("next"), None);
                let error = connecting
                    .wait(Some(PATIENCE))
                    .map(drop)
                    .expect_err("nobody took it");
                assert_eq!(error.error().kind(), ErrorKind::Disconnected, "{error}");
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_membership_moves_to_a_channel_with_others() {
    for place in one_place_each()
        .into_iter()
        .filter(|place| !place.is_iwarp())
    {
        leaves_nothing(&place, || {
            let channel = EventChannel::create().expect("channel");
            let group = SocketAddr::new(IpAddr::from([239, 9, 7, 1]), 0);
            let mut member = Resolver::new(group)
                .source(place.ip)
                .join(JoinAs::FULL_MEMBER)
                .expect("join");
            member.migrate(&channel).expect("migrate");
            assert_eq!(member.check_event().expect("alive"), None);
            assert_eq!(
                member
                    .wait_event(Some(Duration::from_millis(20)))
                    .expect("alive"),
                None
            );
            member.leave().expect("leave");
            assert_eq!(channel.try_next().expect("next"), None);
        });
    }
}
