//! Groups of messengers on real drivers: what a connection costs, and that one does not disturb
//! another.
//!
//! `MESSENGER_MANY` multiplies the number of connections of one group: 1,000 with
//! `MESSENGER_MANY=100`.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{ErrorKind, QpState, wr};
use messenger::{GroupOptions, Messenger, MessengerGroup, MessengerOptions, TryRecv};
use rdmacm::{ConnectParams, InProgress, Resolver};
use test_support::lab::is_model;
use test_support::leak_check::descriptors;
use test_support::process::memory;

use crate::lab::{Endpoint, TIMEOUT, assert_no_leaks, one_endpoint_each};

fn scaled(count: usize) -> usize {
    count * std::env::var("MESSENGER_MANY").map_or(1, |factor| factor.parse().expect("a number"))
}

/// Returns the memory that drivers have pinned for this process, in KiB.
fn pinned() -> usize {
    usize::try_from(memory(std::process::id(), "VmPin") / 1024).expect("less than memory")
}

/// Connects `count` pairs of messengers.
fn connect(
    endpoint: &Endpoint,
    count: usize,
    options: &MessengerOptions<'_>,
) -> Vec<(Messenger, Messenger)> {
    let listener = endpoint.listen();
    let address = listener.local_addr();
    thread::scope(|scope| {
        let clients = scope.spawn(|| {
            (0..count)
                .map(|_| Messenger::connect(address, options, TIMEOUT).expect("connect"))
                .collect::<Vec<_>>()
        });
        let accept = || {
            let request = listener
                .next_request(Some(TIMEOUT))
                .expect("accept")
                .expect("a request in time");
            Messenger::accept(request, options, TIMEOUT).expect("accept")
        };
        let servers: Vec<_> = (0..count).map(|_| accept()).collect();
        let clients = clients.join().expect("clients");
        clients.into_iter().zip(servers).collect()
    })
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

/// Some drivers remove the completions of a queue pair when it is destroyed.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messages_to_a_dropped_member_return_their_receives() {
    for endpoint in one_endpoint_each() {
        assert_no_leaks(&endpoint, || {
            let pd = endpoint.context.alloc_pd().expect("protection domain");
            let options = GroupOptions::new().connections(4).depth(1);
            let group = MessengerGroup::new(&pd, &options).expect("group");
            let options = MessengerOptions::new().group(&group);
            // The shared receive queue is not renewed while the group has a member.
            let (mut client, mut server) = connect(&endpoint, 1, &options).remove(0);
            // More often than the queue has receives.
            for _ in 0..32 {
                let (mut sender, receiver) = connect(&endpoint, 1, &options).remove(0);
                sender.send(b"not received", TIMEOUT).expect("send");
                thread::sleep(Duration::from_millis(5));
                drop(receiver);
            }
            client.send(b"received", TIMEOUT).expect("send");
            let message = server.recv(TIMEOUT).expect("receive").expect("a message");
            assert_eq!(message[..], *b"received");
        });
    }
}

/// Connects a queue pair and sends messages without completing the handshake.
fn send_without_establishing(endpoint: &Endpoint, address: SocketAddr) -> impl Sized + use<> {
    const MESSAGES: usize = 4;
    let resources = endpoint.resources();
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
    for _ in 0..MESSAGES {
        let message = resources.pd.buf(64).expect("buffer");
        qp.post_send(wr::send(message)).expect("send");
    }
    (qp, resources, response)
}

/// A peer that sends, but does not complete the handshake, costs the group no receives.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn handshakes_that_fail_take_no_receives_of_a_group() {
    const LIMIT: Duration = Duration::from_millis(300);
    for endpoint in one_endpoint_each() {
        if endpoint.is_iwarp() {
            // The kernel completes the handshake there.
            continue;
        }
        assert_no_leaks(&endpoint, || {
            let group = group(&endpoint, 3);
            let options = MessengerOptions::new().group(&group);
            // A group without connections gets a new queue.
            let _kept = connect(&endpoint, 1, &options);
            let listener = endpoint.listen();
            let address = listener.local_addr();
            let next = || {
                let request = listener.next_request(Some(TIMEOUT)).expect("accept");
                request.expect("a request in time")
            };
            for _ in 0..12 {
                thread::scope(|scope| {
                    let active = scope.spawn(|| send_without_establishing(&endpoint, address));
                    let error = Messenger::accept(next(), &options, LIMIT);
                    let error = error.map(drop).expect_err("not established");
                    assert_eq!(error.error().kind(), ErrorKind::TimedOut, "{error}");
                    drop(active.join().expect("active side"));
                });
                assert_eq!(group.connections(), 2);
            }
            thread::scope(|scope| {
                let active = scope.spawn(|| {
                    Messenger::connect(address, &MessengerOptions::new(), TIMEOUT).expect("connect")
                });
                let mut server = Messenger::accept(next(), &options, TIMEOUT).expect("accept");
                let mut client = active.join().expect("active side");
                client.send(b"hello", TIMEOUT).expect("send");
                let message = server.recv(TIMEOUT).expect("receive").expect("a message");
                assert_eq!(&message[..], b"hello");
            });
        });
    }
}

/// A connection that ends in the middle of a message costs the group no receive.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn connections_cut_in_a_message_take_no_receives() {
    const LEN: usize = 4 << 20;
    for endpoint in one_endpoint_each() {
        assert_no_leaks(&endpoint, || {
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
            let listener = endpoint.listen();
            let address = listener.local_addr();
            // More often than the group has receives.
            for round in 0..20_u32 {
                thread::scope(|scope| {
                    let active = scope.spawn(|| {
                        Messenger::connect(address, &separate, TIMEOUT).expect("connect")
                    });
                    let request = listener.next_request(Some(TIMEOUT)).expect("accept");
                    let request = request.expect("a request in time");
                    let server = Messenger::accept(request, &in_group, TIMEOUT).expect("accept");
                    let mut client = active.join().expect("active side");
                    let message = vec![7; LEN - 64];
                    assert!(client.try_send(&message).expect("send"));
                    // Some packets of the message have arrived by then.
                    thread::sleep(Duration::from_micros(100 * u64::from(round)));
                    drop(server);
                });
            }
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
