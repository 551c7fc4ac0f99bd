//! How connections end on real drivers.

mod lab;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use ibverbs::{Direction, QpState};
use lab::{PATIENCE, connect, places};
use rdmacm::CmEventType;

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_disconnect_is_seen_by_both_sides() {
    for place in places() {
        let (mut a, mut b) = place.pair();
        assert!(!a.connection.is_disconnected());
        assert_eq!(a.connection.check_event().expect("check"), None);
        a.connection.disconnect().expect("disconnect");
        b.expect_disconnected();
        a.expect_disconnected();
        a.connection.disconnect().expect("again");
        b.connection.disconnect().expect("after the peer");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn both_sides_may_disconnect_at_once() {
    for place in places() {
        let (mut a, mut b) = place.pair();
        a.connection.disconnect().expect("one side");
        b.connection
            .disconnect()
            .expect("the other, before it has seen the event");
        a.expect_disconnected();
        b.expect_disconnected();
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn dropping_one_end_ends_the_other() {
    for place in places() {
        let (mut a, b) = place.pair();
        drop(b);
        a.expect_disconnected();
        let (a, mut b) = place.pair();
        drop(a);
        b.expect_disconnected();
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn receives_in_flight_are_flushed_or_come_back_when_closed() {
    for place in places() {
        let (mut a, mut b) = place.pair();
        for _ in 0..3 {
            a.receive();
        }
        b.connection.disconnect().expect("disconnect");
        a.expect_disconnected();
        let mut back = 0;
        while let Some(retired) = a.retire_within(Duration::from_millis(200)) {
            assert!(!retired.is_success());
            assert!(retired.into_buf().is_some());
            back += 1;
        }
        let reclaimed = a.connection.close().expect("close");
        assert!(reclaimed.sends.is_empty());
        assert_eq!(back + reclaimed.recvs.len(), 4, "on {}", place.name());
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_queue_pair_in_roce_is_in_error_once_the_end_was_seen() {
    for place in places().iter().filter(|place| !place.is_iwarp()) {
        let (mut a, mut b) = place.pair();
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

/// Not a test by itself: the process that is killed by the next one.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn peer_that_is_killed() {
    let Ok(address) = std::env::var(PEER) else {
        return println!("device: none (a process of the next test)");
    };
    let address: SocketAddr = address.parse().expect("an address");
    let place = places()
        .into_iter()
        .find(|place| place.ip == address.ip())
        .expect("the address");
    let _active = connect(address, place.end(), b"");
    println!("connected");
    std::thread::sleep(PATIENCE);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_killed_peer_shows_as_disconnected() {
    for place in places() {
        let listener = place.listen();
        let mut peer = Command::new(std::env::current_exe().expect("this program"))
            .args([
                "--ignored",
                "--exact",
                "peer_that_is_killed",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(PEER, listener.local_addr().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let mut passive = lab::accept(&listener, place.end(), b"");
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
