//! Groups of messengers on real drivers: what a connection costs, and that one does not disturb
//! another.
//!
//! `MESSENGER_MANY` multiplies the number of connections of one group: 1,000 with
//! `MESSENGER_MANY=100`.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{ErrorKind, QpState, wr};
use messenger::{GroupOptions, Messenger, MessengerGroup, MessengerOptions, TryRecv};
use rdmacm::{ConnectParams, EventChannel, InProgress, ListenOptions, Resolver};
use test_support::lab::is_model;
use test_support::leak_check::descriptors;
use test_support::process::memory;

use crate::hooks;
use crate::lab::{self, Endpoint, Resources, TIMEOUT, assert_no_leaks, one_endpoint_each};

fn scaled(count: usize) -> usize {
    count * std::env::var("MESSENGER_MANY").map_or(1, |factor| factor.parse().expect("a number"))
}

/// Returns the memory that drivers have pinned for this process, in KiB.
fn pinned() -> usize {
    usize::try_from(memory(std::process::id(), "VmPin") / 1024).expect("less than memory")
}

/// Connects `count` pairs of messengers with the same options.
fn connect(
    endpoint: &Endpoint,
    count: usize,
    options: &MessengerOptions<'_>,
) -> Vec<(Messenger, Messenger)> {
    connect_with(endpoint, count, [options, options])
}

/// Connects `count` pairs of messengers, with the options of the active and the passive side.
fn connect_with(
    endpoint: &Endpoint,
    count: usize,
    [active, passive]: [&MessengerOptions<'_>; 2],
) -> Vec<(Messenger, Messenger)> {
    let listener = endpoint.listen();
    let address = listener.local_addr();
    thread::scope(|scope| {
        let clients = scope.spawn(|| {
            (0..count)
                .map(|_| Messenger::connect(address, active, TIMEOUT).expect("connect"))
                .collect::<Vec<_>>()
        });
        let accept = || {
            let request = listener
                .next_request(Some(TIMEOUT))
                .expect("accept")
                .expect("a request in time");
            Messenger::accept(request, passive, TIMEOUT).expect("accept")
        };
        let servers: Vec<_> = (0..count).map(|_| accept()).collect();
        let clients = clients.join().expect("clients");
        clients.into_iter().zip(servers).collect()
    })
}

fn options() -> MessengerOptions<'static> {
    MessengerOptions::new().depth(2)
}

fn group(endpoint: &Endpoint, connections: u16) -> MessengerGroup {
    let pd = endpoint.context.alloc_pd().expect("protection domain");
    let options = GroupOptions::new().connections(connections).depth(2);
    MessengerGroup::new(&pd, &options).expect("group")
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_connection_of_a_group_takes_no_descriptor() {
    const PAIRS: usize = 8;
    for endpoint in one_endpoint_each() {
        assert_no_leaks(&endpoint, || {
            let mut costs = Vec::new();
            let mut measure = |name, options: &MessengerOptions<'_>, before: (usize, usize)| {
                let pairs = connect(&endpoint, PAIRS, options);
                let ends = 2 * PAIRS;
                let (fds, kib) = (descriptors() - before.0, pinned() - before.1);
                println!(
                    "{} {name}: {} descriptors in total, {} each; {} KiB pinned each",
                    endpoint.name(),
                    fds,
                    fds / ends,
                    kib / ends
                );
                costs.push((fds, kib / ends));
                drop(pairs);
            };
            let before = (descriptors(), pinned());
            measure("separate", &MessengerOptions::new(), before);
            let pd = endpoint.context.alloc_pd().expect("protection domain");
            measure("one domain", &MessengerOptions::new().pd(&pd), before);
            let group = group(&endpoint, 2 * u16::try_from(PAIRS).expect("a small number"));
            measure("group", &MessengerOptions::new().group(&group), before);
            // The group itself: the completion channel, epoll, and three of the event channel.
            assert!(costs[2].0 <= 5, "{} descriptors", costs[2].0);
            assert!(costs[0].0 >= 2 * PAIRS * 5 && costs[1].0 < costs[0].0);
            // The model of an adapter pins nothing.
            assert!(is_model() || costs[2].1 < costs[0].1 / 2, "{costs:?} KiB");
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn many_connections_of_a_group_share_its_objects() {
    let count = scaled(10);
    for endpoint in one_endpoint_each() {
        assert_no_leaks(&endpoint, || {
            let before = (descriptors(), pinned());
            let group = group(&endpoint, u16::try_from(2 * count).expect("below 2^16"));
            let options = MessengerOptions::new().group(&group);
            let started = Instant::now();
            let mut pairs = connect(&endpoint, count, &options);
            let (fds, kib) = (descriptors() - before.0, pinned() - before.1);
            let name = endpoint.name();
            println!(
                "{name}: {count} connections of one group in {:.1?}",
                started.elapsed()
            );
            println!(
                "{name}: {fds} descriptors and {kib} KiB pinned for their {} ends",
                2 * count
            );
            assert_eq!(group.connections(), 2 * count);
            for (number, (client, server)) in pairs.iter_mut().enumerate() {
                client.send(&number.to_be_bytes(), TIMEOUT).expect("send");
                server.send(&number.to_le_bytes(), TIMEOUT).expect("send");
            }
            for (number, (client, server)) in pairs.iter_mut().enumerate().rev() {
                let to_server = server.recv(TIMEOUT).expect("receive").expect("a message");
                assert_eq!(to_server[..], number.to_be_bytes());
                let to_client = client.recv(TIMEOUT).expect("receive").expect("a message");
                assert_eq!(to_client[..], number.to_le_bytes());
            }
            assert!(fds <= 5, "{fds} descriptors");
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messengers_of_a_group_do_not_disturb_each_other() {
    for endpoint in one_endpoint_each() {
        assert_no_leaks(&endpoint, || {
            let group = group(&endpoint, 8);
            let options = MessengerOptions::new().group(&group);
            let mut pairs = connect(&endpoint, 4, &options);
            assert_eq!(group.connections(), 8);
            let error = Messenger::connect(endpoint.listen().local_addr(), &options, TIMEOUT)
                .map(drop)
                .expect_err("the group is full");
            assert_eq!(error.error().kind(), ErrorKind::LimitReached, "{error}");
            let with_requests = options.requests(1);
            let error = Messenger::connect(endpoint.listen().local_addr(), &with_requests, TIMEOUT)
                .map(drop)
                .expect_err("requests in a group");
            assert_eq!(error.error().kind(), ErrorKind::InvalidInput, "{error}");
            let error = pairs[0].0.buffer(TIMEOUT).expect_err("shared buffers");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            let channel = EventChannel::create().expect("channel");
            let error = pairs[0].0.migrate(&channel).expect_err("a shared channel");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");

            // The first connection is stuck: its receiver takes nothing.
            let (mut stuck, mut lazy) = pairs.remove(0);
            let mut waiting = 0_u32;
            while stuck.try_send(&waiting.to_be_bytes()).expect("send") {
                waiting += 1;
            }
            thread::scope(|scope| {
                for (mut client, mut server) in pairs {
                    scope.spawn(move || {
                        for number in 0..300_u32 {
                            let message = vec![7; 1 + 97 * number as usize];
                            client.send(&message, TIMEOUT).expect("send");
                            let echo = client.recv(TIMEOUT).expect("receive").expect("an echo");
                            assert_eq!(echo.len(), message.len());
                        }
                        client.shutdown(TIMEOUT).expect("shutdown");
                    });
                    scope.spawn(move || {
                        while let Some(message) = server.recv(TIMEOUT).expect("receive") {
                            server.send(&message, TIMEOUT).expect("send");
                        }
                    });
                }
            });
            for number in 0..waiting {
                let message = lazy.recv(TIMEOUT).expect("receive").expect("a message");
                assert_eq!(message[..], number.to_be_bytes());
            }
            assert!(matches!(lazy.try_recv().expect("receive"), TryRecv::Empty));

            // A kept message keeps the receives of its connection reserved.
            stuck.send(b"kept", TIMEOUT).expect("send");
            let kept = lazy.recv(TIMEOUT).expect("receive").expect("a message");
            drop(stuck);
            let error = lazy.recv(TIMEOUT).expect_err("no end of the stream");
            assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
            drop(lazy);
            assert_eq!((group.connections(), &kept[..]), (1, &b"kept"[..]));
            drop(kept);
            assert_eq!(group.connections(), 0);
        });
    }
}

/// Messages arrive until the queue pair of a dropped member is in the error state. Some drivers
/// remove the completions of a queue pair when it is destroyed.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messages_to_a_dropped_member_return_their_receives() {
    for endpoint in one_endpoint_each() {
        assert_no_leaks(&endpoint, || {
            let pd = endpoint.context.alloc_pd().expect("protection domain");
            let of_group = GroupOptions::new().connections(2).depth(1);
            let group = MessengerGroup::new(&pd, &of_group).expect("group");
            let in_group = MessengerOptions::new().group(&group);
            let pair = || connect_with(&endpoint, 1, [&options(), &in_group]).remove(0);
            // The shared receive queue is not renewed while the group has a member.
            let (mut client, mut server) = pair();
            // More often than the queue has receives.
            for _ in 0..16 {
                let (mut sender, receiver) = pair();
                let mut send = move || hooks::deliver(&mut sender, b"not received");
                if endpoint.is_iwarp() {
                    send();
                    drop(receiver);
                } else {
                    hooks::before_error_state(send, || drop(receiver));
                }
            }
            client.send(b"received", TIMEOUT).expect("send");
            let message = server.recv(TIMEOUT).expect("receive").expect("a message");
            assert_eq!(message[..], *b"received");
        });
    }
}

/// Connects a queue pair without completing the handshake. Then waits for a signal, sends messages,
/// and waits until the adapter of the peer has received them.
fn send_without_establishing(
    address: SocketAddr,
    mut resources: Resources,
    signal: &mpsc::Receiver<()>,
) -> impl Sized + use<> {
    const MESSAGES: usize = 4;
    let mut qp = resources.qp();
    let route = Resolver::new(address).timeout(TIMEOUT).resolve();
    let route = route.expect("resolve");
    let init = route.qp_change(QpState::INIT).expect("attributes");
    qp.modify(&init).expect("INIT");
    let pending = route.request(&qp, &ConnectParams::default());
    let response = pending.expect("request").wait(Some(TIMEOUT));
    let response = response.expect("response");
    for state in [QpState::RTR, QpState::RTS] {
        let change = response.qp_change(state).expect("attributes");
        qp.modify(&change).expect("modify");
    }
    signal.recv().expect("the test goes on");
    for _ in 0..MESSAGES {
        let message = resources.pd.buf(64).expect("buffer");
        qp.post_send(wr::send(message)).expect("send");
    }
    let until = Instant::now() + TIMEOUT;
    let mut count = 0;
    while count < MESSAGES {
        for completion in resources.cq.poll().expect("poll") {
            let retired = qp.retire(completion).expect("in flight");
            retired.check().expect("received");
            count += 1;
        }
        assert!(Instant::now() < until, "the group has lost receives");
    }
    (qp, resources, response)
}

/// A peer that sends, but does not complete the handshake, costs the group no receives. Its
/// messages arrive until the queue pair is in the error state.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn handshakes_that_fail_take_no_receives_of_a_group() {
    const LIMIT: Duration = Duration::from_millis(10);
    for endpoint in one_endpoint_each() {
        if endpoint.is_iwarp() {
            // The kernel completes the handshake there.
            continue;
        }
        assert_no_leaks(&endpoint, || {
            let queues = hooks::shared_queues();
            let group = group(&endpoint, 2);
            let in_group = MessengerOptions::new().group(&group);
            let listener = endpoint.listen();
            let address = listener.local_addr();
            let fail = || {
                let resources = endpoint.resources();
                let (signal, signals) = mpsc::channel();
                let active =
                    thread::spawn(move || send_without_establishing(address, resources, &signals));
                let request = lab::request(&listener);
                let send = move || {
                    signal.send(()).expect("the active side waits");
                    drop(active.join().expect("active side"));
                };
                let accept = || Messenger::accept(request, &in_group, LIMIT).map(drop);
                let error = hooks::before_error_state(send, accept);
                let error = error.expect_err("not established");
                assert_eq!(error.error().kind(), ErrorKind::TimedOut, "{error}");
            };
            fail();
            assert_eq!(
                (group.connections(), hooks::shared_queues()),
                (0, queues + 1)
            );
            // A group without connections gets a new queue, but not with one.
            let pair = || connect_with(&endpoint, 1, [&options(), &in_group]).remove(0);
            let (mut client, mut server) = pair();
            for _ in 0..4 {
                fail();
            }
            assert_eq!(
                (group.connections(), hooks::shared_queues()),
                (1, queues + 2)
            );
            client.send(b"hello", TIMEOUT).expect("send");
            let message = server.recv(TIMEOUT).expect("receive").expect("a message");
            assert_eq!(&message[..], b"hello");
        });
    }
}

/// A connection that ends in the middle of a message costs the group no receive, because the group
/// gets a new shared receive queue.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn connections_cut_in_a_message_take_no_receives() {
    const LEN: usize = 4 << 20;
    for endpoint in one_endpoint_each() {
        assert_no_leaks(&endpoint, || {
            let queues = hooks::shared_queues();
            let pd = endpoint.context.alloc_pd().expect("protection domain");
            let options = GroupOptions::new()
                .connections(1)
                .depth(1)
                .max_len(LEN)
                .buffer_len(LEN);
            let group = MessengerGroup::new(&pd, &options).expect("group");
            let in_group = MessengerOptions::new().group(&group);
            let separate = MessengerOptions::new()
                .depth(1)
                .max_len(LEN)
                .buffer_len(LEN);
            let pair = || connect_with(&endpoint, 1, [&separate, &in_group]).remove(0);
            // A connection that was refused is no member of the group.
            let listener = endpoint.listen();
            thread::scope(|scope| {
                scope.spawn(|| drop(lab::request(&listener)));
                let refused = Messenger::connect(listener.local_addr(), &in_group, TIMEOUT);
                refused.map(drop).expect_err("refused");
            });
            // More often than the group has receives.
            for round in 0..10_u32 {
                let (mut client, server) = pair();
                let message = vec![7; LEN - 64];
                assert!(client.try_send(&message).expect("send"));
                // Some packets of the message have arrived by then.
                thread::sleep(Duration::from_micros(200 * u64::from(round)));
                drop(server);
            }
            // A stream that has ended leaves no receive behind.
            for _ in 0..2 {
                let (mut client, mut server) = pair();
                thread::scope(|scope| {
                    scope.spawn(|| client.shutdown(TIMEOUT).expect("shutdown"));
                    assert!(server.recv(TIMEOUT).expect("the end").is_none());
                });
                drop(server);
            }
            let created = hooks::shared_queues() - queues;
            assert_eq!(created, if endpoint.is_iwarp() { 1 } else { 11 });
        });
    }
}

/// Another connection begins before a queue pair is destroyed, which keeps its shared receive
/// queue and all receives.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn receives_of_a_queue_pair_return_when_it_is_destroyed() {
    for endpoint in one_endpoint_each() {
        assert_no_leaks(&endpoint, || {
            let group = group(&endpoint, 2);
            let in_group = MessengerOptions::new().group(&group);
            let (_client, server) = connect_with(&endpoint, 1, [&options(), &in_group]).remove(0);
            let listener = endpoint.listen();
            let (address, resources) = (listener.local_addr(), endpoint.resources());
            let active = thread::spawn(move || lab::connect(address, resources, b""));
            let request = lab::request(&listener);
            let (connected, accepted) = mpsc::channel();
            let other = group.clone();
            let begin = move || {
                let accepting = thread::spawn(move || {
                    let in_group = MessengerOptions::new().group(&other);
                    Messenger::accept(request, &in_group, TIMEOUT).map(drop)
                });
                let peer = active.join().expect("active side");
                connected.send((peer, accepting)).expect("the test waits");
            };
            hooks::before_destruction(begin, || drop(server));
            let (mut peer, accepting) = accepted.recv().expect("connected");
            peer.send(&[0; 64]);
            peer.expect_disconnected_after_first();
            let error = accepting.join().expect("passive side");
            let error = error.expect_err("the message is no greeting");
            assert_eq!(error.error().kind(), ErrorKind::Malformed, "{error}");
        });
    }
}

/// The event of the end was already read when the connection moves to the channel of its group.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn events_from_before_a_connection_joins_its_group_count() {
    for endpoint in one_endpoint_each() {
        assert_no_leaks(&endpoint, || {
            let group = group(&endpoint, 1);
            let in_group = MessengerOptions::new().group(&group);
            let channel = EventChannel::create().expect("channel");
            let listener = ListenOptions::new().accept_on(&channel);
            let listener = listener.bind(SocketAddr::new(endpoint.ip, 0));
            let listener = listener.expect("listener");
            let (address, resources) = (listener.local_addr(), endpoint.resources());
            let active = thread::spawn(move || drop(lab::connect(address, resources, b"")));
            let request = lab::request(&listener);
            let end = move || {
                active.join().expect("active side");
                let key = channel.wait(Some(TIMEOUT)).expect("wait");
                key.expect("an event in time");
            };
            let accept = || Messenger::accept(request, &in_group, TIMEOUT).map(drop);
            let error = hooks::before_migration(end, accept);
            let error = error.expect_err("the connection has ended");
            assert_eq!(error.error().kind(), ErrorKind::Disconnected, "{error}");
        });
    }
}

/// The group has removed a messenger whose event of the end is not read, and another one waits for
/// its own.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn unread_events_of_a_removed_member_hide_no_others() {
    for endpoint in one_endpoint_each() {
        assert_no_leaks(&endpoint, || {
            let group = group(&endpoint, 2);
            let in_group = MessengerOptions::new().group(&group);
            let pair = || connect_with(&endpoint, 1, [&options(), &in_group]).remove(0);
            let (client, server) = pair();
            let (other_client, mut other) = pair();
            drop(client);
            drop(other_client);
            let wait = move || {
                let error = other.recv(TIMEOUT).expect_err("the connection has ended");
                assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
            };
            hooks::before_destruction(wait, || drop(server));
        });
    }
}

/// Queue pairs come and go, and their numbers are used again.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_group_outlives_many_connections() {
    for endpoint in one_endpoint_each() {
        assert_no_leaks(&endpoint, || {
            let group = group(&endpoint, 4);
            let options = MessengerOptions::new().group(&group);
            for round in 0..20_u32 {
                for (mut client, mut server) in connect(&endpoint, 2, &options) {
                    client.send(&round.to_be_bytes(), TIMEOUT).expect("send");
                    if round % 2 == 0 {
                        let message = server.recv(TIMEOUT).expect("receive").expect("a message");
                        assert_eq!(message[..], round.to_be_bytes());
                    }
                    drop(client);
                    if round % 3 == 0 {
                        thread::sleep(Duration::from_millis(5));
                    }
                }
                assert_eq!(group.connections(), 0);
            }
        });
    }
}
