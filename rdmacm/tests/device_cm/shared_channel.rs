//! Connections that start on a shared channel: both sides in one loop, failures, abandoned
//! operations, and several threads that read the same channel.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::ErrorKind;
use rdmacm::active::Resolving;
use rdmacm::{
    Accepting, CmEventType, ConnectParams, Connecting, Connection, EventChannel, IdKey, InProgress,
    ListenOptions, Listener, Resolver, Route,
};
use test_support::leak_check::descriptors;

use crate::lab::{self, Endpoint, ResourcePool, TIMEOUT, leak_checked};
use crate::lab::{Resources, one_endpoint_each};

/// Operations and connections of one channel, by their keys.
#[derive(Default)]
struct Table {
    resolving: HashMap<IdKey, Resolving<Route>>,
    connecting: HashMap<IdKey, Connecting>,
    accepting: HashMap<IdKey, Accepting>,
    connections: HashMap<IdKey, Connection>,
}

fn new_channel() -> EventChannel {
    EventChannel::create().expect("channel")
}

fn listen(endpoint: &Endpoint, channel: &EventChannel) -> Listener {
    ListenOptions::new()
        .channel(channel)
        .accept_on(channel)
        .bind(SocketAddr::new(endpoint.ip, 0))
        .expect("listen")
}

fn resolver(address: SocketAddr, channel: &EventChannel) -> Resolver {
    Resolver::new(address).timeout(TIMEOUT).channel(channel)
}

fn next(channel: &EventChannel) -> IdKey {
    let key = channel.wait(Some(TIMEOUT)).expect("wait");
    key.expect("an event in time")
}

impl Table {
    /// Takes the next step of the identifier that has an event.
    fn advance(&mut self, key: IdKey, create_qp: impl FnOnce() -> ibverbs::QueuePair<ibverbs::Rc>) {
        if let Some(step) = self.resolving.get_mut(&key) {
            if let Some(route) = step.try_finish().expect("resolve") {
                self.resolving.remove(&key);
                let ready = route.with_qp(create_qp()).expect("INIT");
                let connecting = ready.start(&ConnectParams::default()).expect("start");
                assert_eq!(connecting.key(), key);
                self.connecting.insert(key, connecting);
            }
        } else if let Some(step) = self.connecting.get_mut(&key) {
            if let Some(connection) = step.try_finish().expect("connect") {
                self.connecting.remove(&key);
                assert_eq!(connection.key(), key);
                self.connections.insert(key, connection);
            }
        } else if let Some(step) = self.accepting.get_mut(&key) {
            if let Some(connection) = step.try_finish().expect("accept") {
                self.accepting.remove(&key);
                assert_eq!(connection.key(), key);
                self.connections.insert(key, connection);
            }
        } else {
            panic!("the key {key} belongs to nothing");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn one_loop_connects_and_accepts_without_descriptors() {
    const COUNT: usize = 12;
    for endpoint in leak_checked(one_endpoint_each()) {
        let channel = new_channel();
        let listener = listen(&endpoint, &channel);
        let pool = ResourcePool::new(&endpoint, 2 * COUNT);
        let mut created = 0..;
        let before = descriptors();
        let mut table = Table::default();
        for _ in 0..COUNT {
            let resolving = resolver(listener.local_addr(), &channel).start();
            let resolving = resolving.expect("start");
            table.resolving.insert(resolving.key(), resolving);
        }
        while table.connections.len() < 2 * COUNT {
            let key = next(&channel);
            let mut create_qp = || pool.qp(created.next().expect("a number"));
            if key == listener.key() {
                while let Some(request) = listener.try_request().expect("accept") {
                    let ready = request.with_qp(create_qp()).expect("INIT");
                    let accepting = ready.start(&ConnectParams::default()).expect("start");
                    table.accepting.insert(accepting.key(), accepting);
                }
            } else {
                table.advance(key, create_qp);
            }
        }
        assert_eq!(descriptors(), before, "{}", endpoint.name());
        // The channel returns the key of each end that has disconnected.
        let keys: Vec<IdKey> = table.connections.keys().copied().collect();
        for key in &keys {
            let connection = table.connections.get_mut(key).expect("a connection");
            connection.disconnect().expect("disconnect");
        }
        let mut ended = HashSet::new();
        while ended.len() < keys.len() {
            let key = next(&channel);
            let connection = table.connections.get_mut(&key).expect("a connection");
            while let Some(event) = connection.try_event().expect("check") {
                if event.event_type == CmEventType::DISCONNECTED {
                    ended.insert(key);
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn blocking_calls_work_on_a_shared_channel() {
    for endpoint in leak_checked(one_endpoint_each()) {
        let channel = new_channel();
        let listener = listen(&endpoint, &channel);
        // The passive side of the second connection is on another channel than its listener.
        let other = new_channel();
        let second = ListenOptions::new()
            .accept_on(&other)
            .bind(SocketAddr::new(endpoint.ip, 0))
            .expect("listen");
        for listener in [&listener, &second] {
            let (active, passive) = (endpoint.resources(), endpoint.resources());
            thread::scope(|scope| {
                let passive = scope.spawn(|| lab::accept(listener, passive, b""));
                let route = resolver(listener.local_addr(), &channel).resolve();
                let ready = route.expect("resolve").with_qp(active.qp()).expect("INIT");
                let mut active = ready
                    .connect(&ConnectParams::default(), TIMEOUT)
                    .expect("connect");
                let mut passive = passive.join().expect("passive side");
                assert!(passive.connection.channel().is_shared());
                active.disconnect().expect("disconnect");
                passive.expect_disconnected();
            });
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_refused_connection_is_returned_by_its_key() {
    for endpoint in leak_checked(one_endpoint_each()) {
        let channel = new_channel();
        let resources = endpoint.resources();
        // Nothing listens on this port. On iWARP the thread of the handshake reports it.
        let address = SocketAddr::new(endpoint.ip, 9);
        let route = resolver(address, &channel).resolve().expect("resolve");
        let ready = route.with_qp(resources.qp()).expect("INIT");
        let mut connecting = ready.start(&ConnectParams::default()).expect("start");
        let error = loop {
            assert_eq!(next(&channel), connecting.key());
            match connecting.try_finish() {
                Ok(None) => {}
                Ok(Some(_)) => panic!("connected to nothing"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.error().kind(), ErrorKind::Disconnected, "{error}");
        drop(connecting);
        assert_eq!(channel.try_next().expect("next"), None);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn abandoned_operations_leave_no_key_behind() {
    for endpoint in leak_checked(one_endpoint_each()) {
        let channel = new_channel();
        let listener = listen(&endpoint, &channel);
        let address = listener.local_addr();
        let resources: Vec<Resources> = (0..6).map(|_| endpoint.resources()).collect();
        for (number, resources) in resources.iter().enumerate() {
            let resolving = resolver(address, &channel).start().expect("start");
            if number % 3 == 0 {
                drop(resolving);
                continue;
            }
            let route = resolving.wait(Some(TIMEOUT)).expect("resolve");
            let ready = route.with_qp(resources.qp()).expect("INIT");
            let connecting = ready.start(&ConnectParams::default()).expect("start");
            if number % 3 == 1 {
                drop(connecting);
                continue;
            }
            // The request arrives, and is rejected when it is dropped.
            let request = listener.next_request(Some(TIMEOUT)).expect("accept");
            drop(request.expect("a request in time"));
            drop(connecting);
        }
        // Requests of dropped operations can still arrive.
        let quiet = Duration::from_millis(200);
        let end = Instant::now() + TIMEOUT;
        while let Some(key) = channel.wait(Some(quiet)).expect("wait") {
            assert_eq!(key, listener.key());
            drop(listener.try_request().expect("accept"));
            assert!(Instant::now() < end, "the key is returned without end");
        }
    }
}

/// Connects, checks that the peer notices the end, and returns the longest time of a connection.
fn connect_and_disconnect(
    endpoint: &Endpoint,
    address: SocketAddr,
    channel: &EventChannel,
    count: usize,
) -> Duration {
    let resources = endpoint.resources();
    let mut longest = Duration::ZERO;
    for _ in 0..count {
        let began = Instant::now();
        let route = resolver(address, channel).resolve().expect("resolve");
        let ready = route.with_qp(resources.qp()).expect("INIT");
        let mut connection = ready
            .connect(&ConnectParams::default(), TIMEOUT)
            .expect("connect");
        connection.disconnect().expect("disconnect");
        longest = longest.max(began.elapsed());
    }
    longest
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn threads_that_read_one_channel_lose_no_event() {
    const THREADS: usize = 3;
    const EACH: usize = 8;
    for endpoint in leak_checked(one_endpoint_each()) {
        let channel = new_channel();
        let listener = listen(&endpoint, &channel);
        let address = listener.local_addr();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            // It reads events of all others, and takes none.
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    channel.wait(Some(Duration::from_millis(1))).expect("wait");
                    thread::yield_now();
                }
            });
            let server = scope.spawn(|| {
                let peers = (0..THREADS * EACH).map(|_| {
                    let mut peer = lab::accept(&listener, endpoint.resources(), b"");
                    peer.expect_disconnected();
                });
                peers.count()
            });
            let clients: Vec<_> = (0..THREADS)
                .map(|_| scope.spawn(|| connect_and_disconnect(&endpoint, address, &channel, EACH)))
                .collect();
            let times = clients
                .into_iter()
                .map(|client| client.join().expect("client"));
            let longest = times.max().expect("clients");
            println!(
                "{}: at most {longest:.0?} for a connection",
                endpoint.name()
            );
            server.join().expect("server");
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
