//! Dropping any step of connection setup leaks nothing, on real drivers.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use rdmacm::{ConnectParams, Connection, ReadyRequest, ReadyRoute, Resolver, Route};

use crate::lab::{self, Endpoint, TIMEOUT, assert_no_leaks, endpoints, leak_checked};

fn route(endpoint: &Endpoint, address: SocketAddr) -> Route {
    Resolver::new(address)
        .timeout(TIMEOUT)
        .resolve()
        .unwrap_or_else(|error| panic!("{}: {error}", endpoint.name()))
}

fn ready(endpoint: &Endpoint, resources: &lab::Resources, address: SocketAddr) -> ReadyRoute {
    let mut ready = route(endpoint, address)
        .with_qp(resources.qp())
        .expect("INIT");
    resources.receive_on(ready.qp_mut());
    ready
}

fn accept_request(resources: &lab::Resources, listener: &rdmacm::Listener) -> ReadyRequest {
    let request = lab::request(listener);
    let mut ready_request = request.with_qp(resources.qp()).expect("INIT");
    resources.receive_on(ready_request.qp_mut());
    ready_request
}

/// Runs a client that connects to the listener passed to `passive`.
fn with_client(endpoint: &Endpoint, passive: impl FnOnce(&rdmacm::Listener)) {
    let listener = endpoint.listen();
    let address = listener.local_addr();
    thread::scope(|scope| {
        let client = scope.spawn(move || {
            let resources = endpoint.resources();
            drop(ready(endpoint, &resources, address).connect(&ConnectParams::default(), TIMEOUT));
        });
        passive(&listener);
        client.join().expect("client");
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_hundred_sequential_connections_leak_nothing() {
    for endpoint in leak_checked(endpoints()) {
        for _ in 0..100 {
            let (mut a, mut b) = endpoint.pair();
            a.send(b"one message");
            a.retire().check().expect("sent");
            b.retire().check().expect("received");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn twenty_concurrent_connections_leak_nothing() {
    for endpoint in leak_checked(endpoints()) {
        let pairs: Vec<_> = (0..20).map(|_| endpoint.pair()).collect();
        assert_eq!(pairs.len(), 20);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn dropping_any_active_step_leaks_nothing() {
    for endpoint in endpoints() {
        let listener = endpoint.listen();
        let address = listener.local_addr();
        assert_no_leaks(&endpoint, || drop(route(&endpoint, address)));
        assert_no_leaks(&endpoint, || {
            let resources = endpoint.resources();
            drop(ready(&endpoint, &resources, address));
        });
        assert_no_leaks(&endpoint, || {
            let resources = endpoint.resources();
            let unbound = resources.qp();
            drop(route(&endpoint, address));
            drop(unbound);
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_timed_out_connect_leaks_nothing() {
    for endpoint in endpoints() {
        assert_no_leaks(&endpoint, || {
            let listener = endpoint.listen();
            let resources = endpoint.resources();
            let route = ready(&endpoint, &resources, listener.local_addr());
            let error = route
                .connect(&ConnectParams::default(), Duration::from_millis(100))
                .map(drop);
            println!("{}", error.expect_err("no answer"));
        });
        assert_no_leaks(&endpoint, || {
            let listener = endpoint.listen();
            let resources = endpoint.resources();
            let route = ready(&endpoint, &resources, listener.local_addr());
            let _ = route
                .connect(&ConnectParams::default(), Duration::ZERO)
                .map(drop)
                .expect_err("timeout of zero");
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn dropping_any_passive_step_leaks_nothing() {
    for endpoint in endpoints() {
        assert_no_leaks(&endpoint, || drop(endpoint.listen()));
        assert_no_leaks(&endpoint, || {
            with_client(&endpoint, |listener| {
                drop(lab::request(listener));
            });
        });
        assert_no_leaks(&endpoint, || {
            let resources = endpoint.resources();
            with_client(&endpoint, |listener| {
                drop(accept_request(&resources, listener));
            });
        });
        assert_no_leaks(&endpoint, || {
            let resources = endpoint.resources();
            with_client(&endpoint, |listener| {
                drop(
                    accept_request(&resources, listener)
                        .accept(&ConnectParams::default(), TIMEOUT)
                        .expect("accept"),
                );
            });
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn dropping_a_listener_rejects_unread_requests() {
    for endpoint in leak_checked(endpoints()) {
        let listener = endpoint.listen();
        let address = listener.local_addr();
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                let resources = endpoint.resources();
                ready(&endpoint, &resources, address)
                    .connect(&ConnectParams::default(), TIMEOUT)
                    .map(drop)
            });
            // Long enough for the request to arrive on the channel, where it stays unread.
            thread::sleep(Duration::from_millis(300));
            drop(listener);
            let error = client
                .join()
                .expect("client")
                .expect_err("the request was rejected");
            assert!(error.rejection().is_some(), "{error}");
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_request_outlives_its_listener() {
    for endpoint in leak_checked(endpoints()) {
        let listener = endpoint.listen();
        let address = listener.local_addr();
        let resources = endpoint.resources();
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                ready(&endpoint, &endpoint.resources(), address)
                    .connect(&ConnectParams::default(), TIMEOUT)
                    .expect("connect")
            });
            let ready_request = accept_request(&resources, &listener);
            drop(listener);
            let passive: Connection = ready_request
                .accept(&ConnectParams::default(), TIMEOUT)
                .expect("accept");
            drop(passive);
            drop(client.join().expect("client"));
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn connections_and_their_objects_can_be_dropped_in_any_order() {
    for endpoint in leak_checked(endpoints()) {
        let (a, b) = endpoint.pair();
        let (
            lab::Peer {
                connection,
                resources,
            },
            other,
        ) = (a, b);
        drop(resources);
        drop(other);
        drop(connection);
    }
}
