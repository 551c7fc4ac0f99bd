//! Nothing is left behind on real drivers, wherever the chain of types is cut.

mod lab;

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use lab::{PATIENCE, Place, leaves_nothing, leaves_nothing_within, places};
use rdmacm::{ConnectParams, Connection, ReadyRequest, ReadyRoute, Resolver, Route};

fn route(place: &Place, address: SocketAddr) -> Route {
    Resolver::new(address)
        .timeout(PATIENCE)
        .resolve()
        .unwrap_or_else(|error| panic!("{}: {error}", place.name()))
}

fn ready(place: &Place, end: &lab::End, address: SocketAddr) -> ReadyRoute {
    let mut ready = route(place, address).with_qp(end.qp()).expect("INIT");
    end.receive_on(ready.qp_mut());
    ready
}

fn pending(end: &lab::End, listener: &rdmacm::Listener) -> ReadyRequest {
    let request = listener
        .accept(Some(PATIENCE))
        .expect("accept")
        .expect("a request in time");
    let mut pending = request.with_qp(end.qp()).expect("INIT");
    end.receive_on(pending.qp_mut());
    pending
}

/// Runs a client that connects to the listener which `passive` is given.
fn against_a_client(place: &Place, passive: impl FnOnce(&rdmacm::Listener)) {
    let listener = place.listen();
    let address = listener.local_addr();
    thread::scope(|scope| {
        let client = scope.spawn(move || {
            let end = place.end();
            drop(ready(place, &end, address).connect(&ConnectParams::default(), PATIENCE));
        });
        passive(&listener);
        client.join().expect("client");
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_hundred_pairs_in_a_row_leave_nothing() {
    for place in places() {
        leaves_nothing(&place, || {
            for _ in 0..100 {
                let (mut a, mut b) = place.pair();
                a.send(b"one message each");
                a.retire().ok().expect("sent");
                b.retire().ok().expect("received");
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn twenty_pairs_at_once_leave_nothing() {
    for place in places() {
        leaves_nothing(&place, || {
            let pairs: Vec<_> = (0..20).map(|_| place.pair()).collect();
            assert_eq!(pairs.len(), 20);
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_active_chain_leaves_nothing_wherever_it_is_cut() {
    for place in places() {
        let listener = place.listen();
        let address = listener.local_addr();
        leaves_nothing(&place, || drop(route(&place, address)));
        leaves_nothing(&place, || {
            let end = place.end();
            drop(ready(&place, &end, address));
        });
        leaves_nothing(&place, || {
            let end = place.end();
            let unbound = end.qp();
            drop(route(&place, address));
            drop(unbound);
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_connect_that_timed_out_leaves_nothing_once_the_kernel_lets_go() {
    for place in places() {
        leaves_nothing_within(&place, Duration::from_secs(30), || {
            let listener = place.listen();
            let end = place.end();
            let unanswered = ready(&place, &end, listener.local_addr());
            let error = unanswered
                .connect(&ConnectParams::default(), Duration::from_millis(100))
                .map(drop);
            println!("{}", error.expect_err("nobody accepts"));
        });
        leaves_nothing_within(&place, Duration::from_secs(30), || {
            let listener = place.listen();
            let end = place.end();
            let unanswered = ready(&place, &end, listener.local_addr());
            let _ = unanswered
                .connect(&ConnectParams::default(), Duration::ZERO)
                .map(drop)
                .expect_err("no time");
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_passive_chain_leaves_nothing_wherever_it_is_cut() {
    for place in places() {
        leaves_nothing(&place, || drop(place.listen()));
        leaves_nothing(&place, || {
            against_a_client(&place, |listener| {
                drop(
                    listener
                        .accept(Some(PATIENCE))
                        .expect("accept")
                        .expect("one"),
                );
            });
        });
        leaves_nothing(&place, || {
            let end = place.end();
            against_a_client(&place, |listener| drop(pending(&end, listener)));
        });
        leaves_nothing(&place, || {
            let end = place.end();
            against_a_client(&place, |listener| {
                drop(
                    pending(&end, listener)
                        .accept(&ConnectParams::default(), PATIENCE)
                        .expect("accept"),
                );
            });
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_listener_dropped_with_requests_unread_rejects_them() {
    for place in places() {
        leaves_nothing(&place, || {
            let listener = place.listen();
            let address = listener.local_addr();
            thread::scope(|scope| {
                let client = scope.spawn(|| {
                    let end = place.end();
                    ready(&place, &end, address)
                        .connect(&ConnectParams::default(), PATIENCE)
                        .map(drop)
                });
                // Long enough for the request to be on the channel, where nobody takes it.
                thread::sleep(Duration::from_millis(300));
                drop(listener);
                let error = client.join().expect("client").expect_err("nobody accepted");
                assert!(error.rejection().is_some(), "{error}");
            });
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_request_outlives_its_listener() {
    for place in places() {
        leaves_nothing(&place, || {
            let listener = place.listen();
            let address = listener.local_addr();
            let end = place.end();
            thread::scope(|scope| {
                let client = scope.spawn(|| {
                    ready(&place, &place.end(), address)
                        .connect(&ConnectParams::default(), PATIENCE)
                        .expect("connect")
                });
                let pending = pending(&end, &listener);
                drop(listener);
                let passive: Connection = pending
                    .accept(&ConnectParams::default(), PATIENCE)
                    .expect("accept");
                drop(passive);
                drop(client.join().expect("client"));
            });
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_order_in_which_ends_and_domains_go_does_not_matter() {
    for place in places() {
        leaves_nothing(&place, || {
            let (a, b) = place.pair();
            let (lab::Wired { connection, end }, other) = (a, b);
            drop(end);
            drop(other);
            drop(connection);
        });
    }
}
