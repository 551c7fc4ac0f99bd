//! Backlogs and ports of listeners.

use rdma_sys::{RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_DEVICE_REMOVAL};

use super::datagram::event;
use super::*;

#[test]
fn a_backlog_of_zero_has_room_for_one_request() {
    let setup = Setup::new();
    let channel = EventChannel::create().expect("channel");
    let options = ListenOptions::new().backlog(0).channel(&channel);
    calls::reset();
    let listener = options.bind((Ipv4Addr::LOCALHOST, 0).into());
    let listener = listener.expect("listener");
    // The kernel allows 1024 requests with a backlog of 0.
    assert_eq!(calls::reset().backlogs, [1]);
    let resolver = || Resolver::new(listener.local_addr()).timeout(TIMEOUT);
    let start = || {
        let ready = resolver().resolve().expect("route").with_qp(setup.qp());
        ready.expect("INIT").start(&ConnectParams::new())
    };
    let first = start().expect("started");
    assert_eq!(
        channel.wait(Some(TIMEOUT)).expect("wait"),
        Some(listener.key())
    );
    // The queue of the channel is full, so this one is rejected when it is read.
    let mut second = start().expect("started");
    let error = loop {
        channel.try_next().expect("next");
        match second.try_finish() {
            Ok(None) => thread::yield_now(),
            Ok(Some(_)) => panic!("accepted"),
            Err(error) => break error,
        }
    };
    assert!(error.rejection().is_some(), "{error}");
    let request = listener.try_request().expect("accept").expect("a request");
    assert_eq!(request.peer_addr().ip(), Ipv4Addr::LOCALHOST);
    drop(first);
}

/// Soft-iWARP cannot listen on a selected port that TCP uses.
#[test]
fn a_selected_port_that_is_in_use_is_replaced() {
    let _setup = Setup::new();
    let bind = |port, failures| {
        calls::reset();
        for _ in 0..failures {
            calls::fail_next("rdma_listen", Errno::EADDRINUSE);
        }
        let bound = Listener::bind((Ipv4Addr::LOCALHOST, port).into(), 1);
        let attempts = calls::reset().backlogs.len();
        (bound.map(|listener| listener.local_addr().port()), attempts)
    };
    let (bound, attempts) = bind(0, 15);
    let port = bound.expect("the last one is free");
    assert_eq!(attempts, 16);
    let (bound, attempts) = bind(0, 17);
    bound.expect_err("in use");
    assert_eq!(attempts, 16);
    let (bound, attempts) = bind(port, 1);
    bound.expect_err("in use");
    assert_eq!(attempts, 1, "the port was not selected");
    calls::fail_next("rdma_listen", Errno::ENODEV);
    let bound = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), 1);
    bound.expect_err("another error");
}

#[test]
fn the_end_of_a_listener_is_an_error() {
    let _setup = Setup::new();
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), 1);
    let listener = listener.expect("listener");
    for kind in [RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_ADDR_CHANGE] {
        // Other events are skipped.
        calls::add_event(event(RDMA_CM_EVENT_ESTABLISHED, 0));
        calls::add_event(event(kind, 0));
        let error = listener.try_request().expect_err("no listener");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(listener.try_request().expect("no event").is_none());
    }
}
