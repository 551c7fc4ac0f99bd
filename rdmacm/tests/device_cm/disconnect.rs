//! The end of connections on real drivers.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use ibverbs::{Direction, ErrorKind, QpState};
use rdmacm::{CmEventType, ConnectParams, Resolver};
use test_support::process;

use crate::lab::{self, TIMEOUT, connect, endpoints, one_endpoint_each};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_disconnect_is_seen_by_both_sides() {
    for endpoint in endpoints() {
        let (mut a, mut b) = endpoint.pair();
        assert!(!a.connection.is_disconnected());
        assert_eq!(a.connection.try_event().expect("check"), None);
        a.connection.disconnect().expect("disconnect");
        b.expect_disconnected();
        a.expect_disconnected();
        a.connection.disconnect().expect("again");
        b.connection.disconnect().expect("after the peer");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn both_sides_can_disconnect_concurrently() {
    for endpoint in endpoints() {
        let (mut a, mut b) = endpoint.pair();
        a.connection.disconnect().expect("one side");
        b.connection
            .disconnect()
            .expect("the other side, before it reads the event");
        a.expect_disconnected();
        b.expect_disconnected();
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn dropping_one_side_disconnects_the_other() {
    for endpoint in endpoints() {
        let (mut a, b) = endpoint.pair();
        drop(b);
        a.expect_disconnected();
        let (a, mut b) = endpoint.pair();
        drop(a);
        b.expect_disconnected();
    }
}

/// The active side is often connected before the passive side has dropped its acceptance. On RoCE
/// the kernel then reports one of two events (docs/drivers.md, fact 62).
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn dropping_an_acceptance_disconnects_the_active_side() {
    const COUNT: usize = 8;
    for endpoint in one_endpoint_each() {
        let listener = endpoint.listen();
        let address = listener.local_addr();
        let mut connected = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                let resources = endpoint.resources();
                for _ in 0..COUNT {
                    let request = lab::request(&listener);
                    let ready = request.with_qp(resources.qp()).expect("INIT");
                    drop(ready.start(&ConnectParams::default()).expect("start"));
                }
            });
            let resources = endpoint.resources();
            for _ in 0..COUNT {
                let route = Resolver::new(address).timeout(TIMEOUT).resolve();
                let ready = route.expect("resolve").with_qp(resources.qp());
                let outcome = ready
                    .expect("INIT")
                    .connect(&ConnectParams::default(), TIMEOUT);
                match outcome {
                    Ok(mut connection) => {
                        connected += 1;
                        let event = connection.wait_event(Some(TIMEOUT)).expect("wait");
                        let event = event.expect("an event in time");
                        assert_eq!(event.event_type, CmEventType::DISCONNECTED, "{event:?}");
                        assert!(connection.is_disconnected());
                    }
                    Err(error) => assert_ne!(error.error().kind(), ErrorKind::TimedOut, "{error}"),
                }
            }
        });
        println!("{}: {connected} of {COUNT} connected", endpoint.name());
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn pending_receives_are_flushed_or_reclaimed() {
    for endpoint in endpoints() {
        let (mut a, mut b) = endpoint.pair();
        for _ in 0..3 {
            a.receive();
        }
        b.connection.disconnect().expect("disconnect");
        a.expect_disconnected();
        let mut flushed = 0;
        while let Some(retired) = a.retire_within(Duration::from_millis(200)) {
            assert!(!retired.is_success());
            assert!(retired.into_buf().is_some());
            flushed += 1;
        }
        let reclaimed = a.connection.close().expect("close");
        assert!(reclaimed.sends.is_empty());
        assert_eq!(flushed + reclaimed.recvs.len(), 4, "on {}", endpoint.name());
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_disconnect_moves_roce_queue_pairs_to_the_error_state() {
    for endpoint in endpoints().iter().filter(|endpoint| !endpoint.is_iwarp()) {
        let (mut a, mut b) = endpoint.pair();
        b.connection.disconnect().expect("disconnect");
        a.expect_disconnected();
        assert_eq!(a.connection.qp().state().expect("state"), QpState::ERR);
        assert_eq!(b.connection.qp().state().expect("state"), QpState::ERR);
        let flushed = a.retire();
        assert_eq!(
            (flushed.direction(), flushed.is_success()),
            (Direction::Recv, false)
        );
    }
}

const PEER: &str = "RDMACM_TEST_PEER";

/// Not a test: the process that the next test kills.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn killed_peer_process() {
    let Ok(address) = std::env::var(PEER) else {
        return println!("device: none (helper process of the next test)");
    };
    let address: SocketAddr = address.parse().expect("an address");
    let endpoint = endpoints()
        .into_iter()
        .find(|endpoint| endpoint.ip == address.ip())
        .expect("the address");
    let _active = connect(address, endpoint.resources(), b"");
    println!("connected");
    thread::sleep(TIMEOUT);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_killed_peer_is_reported_as_disconnected() {
    for endpoint in endpoints() {
        let listener = endpoint.listen();
        let mut peer = process::ignored_test("disconnect::killed_peer_process")
            .env(PEER, listener.local_addr().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let mut passive = lab::accept(&listener, endpoint.resources(), b"");
        let output = BufReader::new(peer.stdout.take().expect("piped"));
        assert!(
            output
                .lines()
                .any(|line| line.expect("text").ends_with("connected"))
        );
        peer.kill().expect("kill");
        peer.wait().expect("wait");
        passive.expect_disconnected();
        assert_eq!(
            passive
                .connection
                .wait_event(Some(Duration::ZERO))
                .expect("wait")
                .map(|event| event.event_type)
                .filter(|&event| event != CmEventType::TIMEWAIT_EXIT),
            None
        );
    }
}
