//! Datagram services and multicast groups. The model has none, so the tests add their events.

use std::ptr;

use ibverbs::{Qkey, Qpn, Ud};
use nix::sys::socket::SockaddrStorage;
use rdma_sys::{
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_MULTICAST_JOIN,
    RDMA_CM_EVENT_UNREACHABLE, RDMA_PS_UDP, ibv_ah_attr, rdma_cm_event,
    rdma_cm_event__bindgen_ty_1, rdma_create_id, rdma_resolve_addr, rdma_ud_param,
};
use rdmacm::RejectReason;
use rdmacm::datagram::multicast::{JoinAs, Joining, Membership};
use rdmacm::datagram::{DatagramRoute, ServiceListener, ServiceRequest};

use super::*;

pub(crate) fn event(kind: u32, status: i32) -> rdma_cm_event {
    let data = b"private";
    let ud = rdma_ud_param {
        private_data: data.as_ptr().cast(),
        private_data_len: 7,
        ah_attr: ibv_ah_attr {
            dlid: 3,
            port_num: 1,
            ..Default::default()
        },
        qp_num: 77,
        qkey: 5,
    };
    rdma_cm_event {
        id: ptr::null_mut(),
        listen_id: ptr::null_mut(),
        event: kind,
        status,
        param: rdma_cm_event__bindgen_ty_1 { ud },
    }
}

/// Resolves an address on the identifier that was created last.
fn resolve(address: SocketAddr) -> i32 {
    let address = SockaddrStorage::from(address);
    let to = (&raw const address).cast_mut().cast();
    // SAFETY: the identifier exists, and librdmacm only reads the address.
    unsafe { rdma_resolve_addr(calls::last_id(), ptr::null_mut(), to, 1000) }
}

fn ud_qp(setup: &Setup) -> QueuePair<Ud> {
    let cq = setup.context.create_cq(CqOptions::new().depth(16));
    let cq = cq.expect("completion queue");
    let created = setup.pd().create_qp::<Ud>(&cq, &cq, QpOptions::new());
    created.expect("qp")
}

fn route(setup: &Setup) -> DatagramRoute {
    let resolver = Resolver::new(setup.listener.local_addr()).timeout(TIMEOUT);
    resolver.resolve_datagram().expect("route")
}

#[test]
fn a_service_answers_or_rejects() {
    let setup = Setup::new();
    let error = route(&setup).start_query(&[0; 181]).expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let query = || {
        calls::replace_next("rdma_connect", |_| 0);
        let mut querying = route(&setup).start_query(b"request").expect("sent");
        assert!(querying.try_finish().expect("no error").is_none());
        querying
    };
    let mut querying = query();
    calls::add_event(event(RDMA_CM_EVENT_ESTABLISHED, 0));
    let service = querying.try_finish().expect("no error").expect("found");
    assert_eq!(service.private_data, b"private");
    let address = service.address;
    assert_eq!((address.qpn, address.qkey), (Qpn(77), Qkey(5)));
    querying.try_finish().expect_err("finished");
    for (kind, status, reason) in [
        (
            RDMA_CM_EVENT_UNREACHABLE,
            1,
            Some(RejectReason::INVALID_SERVICE_ID),
        ),
        (RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT, None),
        (RDMA_CM_EVENT_CONNECT_RESPONSE, 0, None),
    ] {
        let mut querying = query();
        calls::add_event(event(kind, status));
        let error = querying.try_finish().expect_err("not found");
        let rejection = error.rejection();
        assert_eq!(rejection.map(|rejection| rejection.reason), reason);
        assert!(rejection.is_none_or(|rejection| rejection.private_data == b"private"));
    }
    let params = calls::reset().params;
    assert!(
        params.iter().all(|params| params.qp_num == 0
            && !params.has_srq
            && params.private_data == b"request")
    );
    assert_eq!(params.len(), 4);
}

#[test]
fn datagram_queue_pairs_are_checked() {
    let setup = Setup::new();
    let mut qp = ud_qp(&setup);
    calls::rename_devices(Some(c"mlx5_9"));
    let other = route(&setup);
    calls::rename_devices(None);
    let error = other.start_qp(&mut qp).expect_err("another device");
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    route(&setup).start_qp(&mut qp).expect("RTS");
    let state = qp.state().expect("state");
    assert_eq!(state, ibverbs::QpState::RTS);

    let address = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = ListenOptions::new().bind_datagram(address);
    let listener = listener.expect("listener");
    let listen_id = calls::last_id();
    let request = || {
        let request = request(&setup, &listener, listen_id);
        assert_eq!(request.private_data(), b"private");
        request
    };
    let error = request().accept(&qp, &[0; 137]).expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let error = request().reject(&[0; 137]).expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("137 bytes"), "{error}");
    calls::rename_devices(Some(c"mlx5_9"));
    let other = request();
    calls::rename_devices(None);
    let error = other.accept(&qp, b"").expect_err("another device");
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    assert_eq!(calls::reset().params, []);
    let accepted = request();
    calls::replace_next("rdma_accept", |_| 0);
    accepted.accept(&qp, b"welcome").expect("accepted");
    let params = calls::reset().params;
    assert_eq!(params.len(), 1);
    assert_eq!(params[0].qp_num, qp.qp_num().0);
    assert_eq!(params[0].private_data, b"welcome");
}

/// Returns a request to a service, from an identifier on the channel of the listener.
fn request(
    setup: &Setup,
    listener: &ServiceListener,
    listen_id: *mut rdma_sys::rdma_cm_id,
) -> ServiceRequest {
    let request = try_request(setup, listener, listen_id).expect("no error");
    request.expect("a request")
}

pub(super) fn try_request(
    setup: &Setup,
    listener: &ServiceListener,
    listen_id: *mut rdma_sys::rdma_cm_id,
) -> ibverbs::Result<Option<ServiceRequest>> {
    let mut id = ptr::null_mut();
    // SAFETY: the listener exists, and so does its channel.
    let created = unsafe {
        let channel = (*listen_id).channel;
        rdma_create_id(channel, &raw mut id, ptr::null_mut(), RDMA_PS_UDP)
    };
    assert_eq!((created, resolve(setup.listener.local_addr())), (0, 0));
    // SAFETY: the identifier exists. Reading its event sets the device.
    while unsafe { (*id).verbs }.is_null() {
        assert!(listener.try_request().expect("no error").is_none());
    }
    calls::add_event(rdma_cm_event {
        listen_id,
        ..event(RDMA_CM_EVENT_CONNECT_REQUEST, 0)
    });
    listener.try_request()
}

/// Starts to join a group. The model resolves its own address instead.
pub(super) fn start_join(setup: &Setup) -> Joining {
    let own = setup.listener.local_addr();
    calls::reset();
    calls::replace_next("rdma_resolve_addr", move |_| resolve(own));
    let group = (Ipv4Addr::new(239, 1, 2, 3), 0).into();
    let joining = Resolver::new(group).start_join(JoinAs::FULL_MEMBER);
    joining.expect("started")
}

/// Waits until the join was requested.
fn request_join(mut joining: Joining) -> Joining {
    calls::replace_next("rdma_join_multicast_ex", |_| 0);
    wait_readable(&joining);
    assert!(joining.try_finish().expect("no error").is_none());
    joining
}

fn join(mut joining: Joining) -> Membership {
    calls::add_event(event(RDMA_CM_EVENT_MULTICAST_JOIN, 0));
    let member = joining.try_finish().expect("no error").expect("joined");
    joining.try_finish().expect_err("finished");
    member
}

/// Fails unless the group was left a number of times, and the identifier was destroyed then.
fn check_left(what: &str, times: usize) {
    let mut names = calls::reset().names;
    names.retain(|name| ["rdma_leave_multicast", "rdma_destroy_id"].contains(name));
    let mut expected = vec!["rdma_leave_multicast"; times];
    expected.push("rdma_destroy_id");
    assert_eq!(names, expected, "{what}");
}

#[test]
fn groups_are_left_once() {
    let setup = Setup::new();
    drop(start_join(&setup));
    check_left("before the request", 0);

    let mut joining = start_join(&setup);
    calls::fail_next("rdma_join_multicast_ex", Errno::ENODEV);
    wait_readable(&joining);
    joining.try_finish().expect_err("not requested");
    drop(joining);
    check_left("failed", 0);

    let mut joining = start_join(&setup);
    calls::add_event(event(RDMA_CM_EVENT_MULTICAST_JOIN, 0));
    joining.try_finish().expect_err("no device");
    drop(joining);
    check_left("an early event", 0);

    drop(request_join(start_join(&setup)));
    check_left("requested", 1);

    for kind in [RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED] {
        let mut joining = request_join(start_join(&setup));
        calls::add_event(event(kind, -libc::ENETDOWN));
        joining.try_finish().expect_err("an error");
        drop(joining);
        check_left("an error", 1);
    }

    let member = join(request_join(start_join(&setup)));
    let address = member.ud_address();
    assert_eq!((address.qpn, address.qkey), (Qpn(77), Qkey(5)));
    drop(member);
    check_left("dropped", 1);

    let member = join(request_join(start_join(&setup)));
    calls::replace_next("rdma_leave_multicast", |_| 0);
    member.leave().expect("left");
    check_left("left", 1);

    let joining = start_join(&setup);
    calls::rename_devices(Some(c"mlx5_9"));
    let member = join(request_join(joining));
    calls::rename_devices(None);
    let error = member.attach(&mut ud_qp(&setup));
    let error = error.expect_err("another device");
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
}
