//! The end of connections, and faults of the device.

use nic_model::DeviceFault;
use rdma_sys::{RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_DEVICE_REMOVAL};

use super::datagram::event;
use super::*;

/// Returns the calls that end a connection since the last time.
fn ending_calls() -> Vec<&'static str> {
    let mut names = calls::reset().names;
    let ends = |name: &&str| ["rdma_disconnect", "ibv_modify_qp", "ibv_destroy_qp"].contains(name);
    names.retain(ends);
    names
}

#[test]
fn each_side_disconnects_once() {
    let setup = Setup::new();
    let (mut active, mut passive) = setup.pair();
    calls::reset();
    active.disconnect().expect("disconnected");
    assert_eq!(ending_calls(), ["ibv_modify_qp", "rdma_disconnect"]);
    active.disconnect().expect("again");
    assert_eq!(ending_calls(), [""; 0]);
    // The peer waits for the answer.
    wait_readable(&passive);
    let event = passive.try_event().expect("check").expect("an event");
    assert_eq!(event.event_type, CmEventType::DISCONNECTED);
    assert_eq!(ending_calls(), ["rdma_disconnect", "ibv_modify_qp"]);
    passive.disconnect().expect("after the event");
    drop(passive.close().expect("closed"));
    assert_eq!(ending_calls(), ["ibv_destroy_qp"]);
    wait_readable(&active);
    active.try_event().expect("check").expect("an event");
    assert_eq!(ending_calls(), [""; 0]);

    let (active, _passive) = setup.pair();
    calls::reset();
    drop(active.close().expect("closed"));
    let expected = ["ibv_modify_qp", "rdma_disconnect", "ibv_destroy_qp"];
    assert_eq!(ending_calls(), expected);
}

#[test]
fn a_released_connection_is_disconnected() {
    let setup = Setup::new();
    for (errno, is_over) in [
        (Errno::EINVAL, true),
        (Errno::ENOTCONN, true),
        (Errno::ENODEV, false),
    ] {
        let (mut active, _passive) = setup.pair();
        calls::fail_next("rdma_disconnect", errno);
        assert_eq!(active.disconnect().is_ok(), is_over, "{errno}");
        assert!(active.is_disconnected());
    }
}

#[test]
fn the_removal_of_the_device_ends_the_connection() {
    let setup = Setup::new();
    for (kind, error_kind, is_over) in [
        (RDMA_CM_EVENT_ADDR_CHANGE, ErrorKind::PortDown, false),
        (RDMA_CM_EVENT_DEVICE_REMOVAL, ErrorKind::NotFound, true),
    ] {
        // The identifier of the active side is the last one that was created.
        let (mut active, _passive) = setup.pair();
        calls::add_event(event(kind, 0));
        let error = active.try_event().expect_err("no device");
        assert_eq!(error.kind(), error_kind, "{error}");
        assert_eq!(active.is_disconnected(), is_over);
    }
}

#[test]
fn faults_of_this_side_are_found() {
    let setup = Setup::new();
    let (mut active, _passive) = setup.pair();
    active.check_device().expect("no fault");
    active.qp_mut().to_error().expect("ERR");
    let error = active.check_device().expect_err("not in RTS");
    assert_eq!(error.kind(), ErrorKind::WrongState, "{error}");
    active.check_port().expect("no fault of the port");
    active.disconnect().expect("disconnected");
    active.check_device().expect("the connection has ended");

    nic_model::fail(0, DeviceFault::LinkDown);
    let error = loop {
        if let Err(error) = active.check_device() {
            break error;
        }
        thread::yield_now();
    };
    assert_eq!(error.kind(), ErrorKind::PortDown, "{error}");
    nic_model::repair(0);
    while active.check_port().is_err() {
        thread::yield_now();
    }
}
