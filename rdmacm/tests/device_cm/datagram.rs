//! Datagram services and multicast groups on real drivers, which iWARP does not support.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{ErrorKind, GRH_LEN, QpState, wr::Destination};
use rdmacm::datagram::multicast::JoinAs;
use rdmacm::datagram::{Service, ServiceListener, ServiceRequest};
use rdmacm::{
    ConnectError, InProgress, ListenOptions, PortSpace, PrivateDataLimits, RejectReason, Resolver,
};

use crate::lab::post::UdPeer;
use crate::lab::{Endpoint, TIMEOUT, assert_no_leaks, endpoints, leak_checked, one_endpoint_each};

fn listen(endpoint: &Endpoint) -> ServiceListener {
    ListenOptions::new()
        .bind_datagram(SocketAddr::new(endpoint.ip, 0))
        .expect("listen")
}

fn next(listener: &ServiceListener) -> ServiceRequest {
    listener
        .next_request(Some(TIMEOUT))
        .expect("accept")
        .expect("an event or request in time")
}

fn query(address: SocketAddr, private_data: &[u8]) -> Result<Service, ConnectError> {
    Resolver::new(address)
        .timeout(TIMEOUT)
        .resolve_datagram()?
        .query(private_data, TIMEOUT)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn one_queue_pair_serves_several_clients() {
    for endpoint in leak_checked(endpoints().into_iter().filter(Endpoint::has_datagrams)) {
        let listener = listen(&endpoint);
        let address = listener.local_addr();
        thread::scope(|scope| {
            for number in 0..2_u8 {
                let endpoint = &endpoint;
                scope.spawn(move || {
                    let route = Resolver::new(address)
                        .timeout(TIMEOUT)
                        .resolve_datagram()
                        .expect("resolve");
                    assert_eq!(route.device_name(), endpoint.name());
                    assert_eq!(route.peer_addr(), address);
                    let mut peer = UdPeer::new(endpoint);
                    route.start_qp(&mut peer.qp).expect("RTS");
                    peer.receive(1);
                    let service = route.query(&[number], TIMEOUT).expect("found");
                    assert!(service.private_data.starts_with(b"welcome"));
                    let destination = service.address.destination(&mut peer.qp).expect("address");
                    peer.send(&[number; 5], destination);
                    let (response, source) = peer.next().expect("an response");
                    assert_eq!(response, [number + 100; 5]);
                    assert_eq!(source.qpn, service.address.qpn);
                });
            }
            let mut peer = UdPeer::new(&endpoint);
            for index in 0..2 {
                let request = next(&listener);
                assert_eq!(request.device_name(), endpoint.name());
                if index == 0 {
                    request.start_qp(&mut peer.qp).expect("RTS");
                    assert_eq!(peer.qp.state().expect("state"), QpState::RTS);
                    peer.receive(6);
                }
                request.accept(&peer.qp, b"welcome").expect("accept");
            }
            for _ in 0..2 {
                let deadline = Instant::now() + TIMEOUT;
                let (buf, source) = loop {
                    assert!(Instant::now() < deadline, "no datagram");
                    let Some(completion) = peer.cq.poll().expect("poll").next() else {
                        thread::sleep(Duration::from_millis(1));
                        continue;
                    };
                    let source = completion.source();
                    break (
                        peer.qp
                            .retire(completion)
                            .expect("a completion of this queue pair")
                            .into_buf()
                            .expect("one"),
                        source,
                    );
                };
                let handle = peer
                    .pd
                    .create_ah_from_wc(1, &source, &buf)
                    .expect("address");
                let address = peer.qp.hold_address(&handle).expect("hold");
                let qkey = ibverbs::Qkey(rdma_sys::RDMA_UDP_QKEY);
                let response = [buf[GRH_LEN] + 100; 5];
                peer.send(
                    &response,
                    Destination {
                        address,
                        qpn: source.qpn,
                        qkey,
                    },
                );
            }
            // Lets the clients receive their answers before the queue pair is destroyed.
            thread::sleep(Duration::from_millis(200));
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn private_data_reaches_both_sides_up_to_its_limits() {
    let limits = PrivateDataLimits::DATAGRAM;
    for endpoint in one_endpoint_each()
        .into_iter()
        .filter(Endpoint::has_datagrams)
    {
        let listener = listen(&endpoint);
        let address = listener.local_addr();
        let (query_data, reply_data) = (vec![7; limits.request], vec![9; limits.reply]);
        thread::scope(|scope| {
            scope.spawn(|| {
                let request = next(&listener);
                assert_eq!(request.private_data(), query_data);
                let mut peer = UdPeer::new(&endpoint);
                request.start_qp(&mut peer.qp).expect("RTS");
                request.accept(&peer.qp, &reply_data).expect("accept");
            });
            assert_eq!(
                query(address, &query_data).expect("found").private_data,
                reply_data
            );
        });
        let error = query(address, &vec![7; limits.request + 1])
            .map(drop)
            .expect_err("too long");
        assert_eq!(error.error().kind(), ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rejected_queries_report_their_reasons() {
    for endpoint in one_endpoint_each()
        .into_iter()
        .filter(Endpoint::has_datagrams)
    {
        assert_no_leaks(&endpoint, || {
            let listener = listen(&endpoint);
            let address = listener.local_addr();
            thread::scope(|scope| {
                scope.spawn(|| {
                    next(&listener).reject(b"try again later").expect("reject");
                    drop(next(&listener));
                });
                let error = query(address, b"").expect_err("rejected");
                assert_eq!(error.error().kind(), ErrorKind::Disconnected, "{error}");
                let rejection = error.rejection().expect("a rejection");
                assert!(
                    rejection.private_data.starts_with(b"try again later"),
                    "{rejection:?}"
                );
                assert!(error.to_string().contains("\"try again later\""), "{error}");
                let error = query(address, b"").expect_err("dropped");
                assert!(
                    error
                        .rejection()
                        .is_some_and(|rejection| rejection.reason.is_by_application()),
                    "{error}"
                );
            });
            drop(listener);
            let error = query(address, b"").expect_err("no listener");
            assert_eq!(
                error.rejection().map(|rejection| rejection.reason),
                Some(RejectReason::INVALID_SERVICE_ID),
                "{error}"
            );
        });
    }
}

/// Returns the address of a group that only one test uses.
fn group(endpoint: &Endpoint, last: u8) -> SocketAddr {
    let ip: IpAddr = if endpoint.ip.is_ipv4() {
        IpAddr::from([239, 9, 8, last])
    } else {
        format!("ff1e::9:{last:x}").parse().expect("a group")
    };
    SocketAddr::new(ip, 0)
}

/// Returns `true` if the endpoint supports groups. Linux has no IPv6 groups on RoCE v2.
fn has_groups(endpoint: &Endpoint) -> bool {
    endpoint.has_datagrams() && (endpoint.ip.is_ipv4() || endpoint.is_infiniband())
}

fn multicast_endpoints() -> Vec<Endpoint> {
    endpoints().into_iter().filter(has_groups).collect()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn ipv6_groups_are_unsupported_on_roce() {
    for endpoint in endpoints()
        .into_iter()
        .filter(|endpoint| endpoint.has_datagrams() && !has_groups(endpoint))
    {
        assert_no_leaks(&endpoint, || {
            let resolver = Resolver::new(group(&endpoint, 5))
                .source(endpoint.ip)
                .timeout(TIMEOUT);
            let error = resolver
                .join(JoinAs::FULL_MEMBER)
                .map(drop)
                .expect_err("no IPv6 groups");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains("use an IPv4 group"), "{error}");
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn members_receive_until_they_leave() {
    for endpoint in leak_checked(multicast_endpoints()) {
        let join = || {
            let resolver = Resolver::new(group(&endpoint, 1))
                .source(endpoint.ip)
                .timeout(TIMEOUT);
            resolver.join(JoinAs::FULL_MEMBER).expect("join")
        };
        let mut members = Vec::new();
        for _ in 0..2 {
            let mut member = join();
            assert_eq!(member.device_name(), endpoint.name());
            assert_eq!(member.local_addr().ip(), endpoint.ip);
            assert_eq!(member.try_event().expect("no error"), None);
            let mut peer = UdPeer::new(&endpoint);
            member.start_qp(&mut peer.qp).expect("RTS");
            peer.receive(4);
            member.attach(&mut peer.qp).expect("attach");
            members.push((member, peer));
        }
        assert_eq!(members[0].0.ud_address(), members[1].0.ud_address());
        let (sender, peer) = &mut members[0];
        let destination = sender.destination(&mut peer.qp).expect("address");
        peer.send(b"to all", destination);
        for (_, peer) in &mut members {
            assert_eq!(peer.next().expect("a datagram").0, b"to all");
        }
        // One member detaches and leaves.
        let (listener, mut detached) = members.pop().expect("two");
        listener.detach(&mut detached.qp).expect("detach");
        listener.leave().expect("leave");
        let (_, peer) = &mut members[0];
        peer.send(b"second", destination);
        assert_eq!(peer.next().expect("a datagram").0, b"second");
        assert!(
            detached.cq.poll().expect("poll").next().is_none(),
            "a detached queue pair receives nothing"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn cancelled_joins_leak_nothing_and_wrong_groups_are_errors() {
    for endpoint in leak_checked(multicast_endpoints()) {
        let resolver = || {
            Resolver::new(group(&endpoint, 2))
                .source(endpoint.ip)
                .timeout(TIMEOUT)
        };
        drop(resolver().start_join(JoinAs::FULL_MEMBER).expect("start"));
        let mut joining = resolver().start_join(JoinAs::FULL_MEMBER).expect("start");
        while joining.try_finish().expect("join").is_none() {
            thread::yield_now();
        }
        let error = Resolver::new(SocketAddr::new(endpoint.ip, 0))
            .join(JoinAs::FULL_MEMBER)
            .map(drop);
        assert_eq!(
            error.expect_err("not a multicast address").kind(),
            ErrorKind::InvalidInput
        );
        let error = resolver()
            .port_space(PortSpace::TCP)
            .join(JoinAs::FULL_MEMBER)
            .map(drop);
        assert_eq!(
            error.expect_err("port space of connections").kind(),
            ErrorKind::InvalidInput
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn send_only_membership_works_or_is_unsupported() {
    for endpoint in multicast_endpoints() {
        match Resolver::new(group(&endpoint, 3))
            .source(endpoint.ip)
            .timeout(TIMEOUT)
            .join(JoinAs::SEND_ONLY)
        {
            Ok(member) => {
                let mut peer = UdPeer::new(&endpoint);
                member.start_qp(&mut peer.qp).expect("RTS");
                let destination = member.destination(&mut peer.qp).expect("address");
                peer.send(b"send only", destination);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn datagrams_are_unsupported_on_iwarp() {
    for endpoint in one_endpoint_each()
        .iter()
        .filter(|endpoint| endpoint.is_iwarp())
    {
        assert_no_leaks(endpoint, || {
            let address = SocketAddr::new(endpoint.ip, 7174);
            for error in [
                ListenOptions::new()
                    .bind_datagram(address)
                    .map(drop)
                    .expect_err("listen"),
                Resolver::new(address)
                    .timeout(TIMEOUT)
                    .resolve_datagram()
                    .map(drop)
                    .expect_err("resolve"),
                Resolver::new(group(endpoint, 4))
                    .source(endpoint.ip)
                    .timeout(TIMEOUT)
                    .join(JoinAs::FULL_MEMBER)
                    .map(drop)
                    .expect_err("join"),
            ] {
                println!("{error}");
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                assert!(error.to_string().contains(endpoint.name()), "{error}");
            }
        });
    }
}
