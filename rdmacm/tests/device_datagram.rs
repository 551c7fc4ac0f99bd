//! Services of datagrams and multicast groups on real drivers; iWARP says that it has neither.

mod lab;

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{ErrorKind, GRH_LEN, QpState, wr::Destination};
use lab::post::Post;
use lab::{PATIENCE, Place, leaves_nothing, one_place_each, places};
use rdmacm::datagram::multicast::JoinAs;
use rdmacm::datagram::{Service, ServiceListener, ServiceRequest};
use rdmacm::{
    ConnectError, InProgress, ListenOptions, PortSpace, PrivateDataLimits, RejectReason, Resolver,
};

fn listen(place: &Place) -> ServiceListener {
    ListenOptions::new()
        .bind_datagram(SocketAddr::new(place.ip, 0))
        .expect("listen")
}

fn next(listener: &ServiceListener) -> ServiceRequest {
    listener
        .accept(Some(PATIENCE))
        .expect("accept")
        .expect("in time")
}

fn query(address: SocketAddr, private_data: &[u8]) -> Result<Service, ConnectError> {
    Resolver::new(address)
        .timeout(PATIENCE)
        .resolve_datagram()?
        .query(private_data, PATIENCE)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_service_is_found_and_speaks_with_several_clients_on_one_queue_pair() {
    for place in places().into_iter().filter(|place| !place.is_iwarp()) {
        leaves_nothing(&place, || {
            let listener = listen(&place);
            let address = listener.local_addr();
            thread::scope(|scope| {
                for number in 0..2_u8 {
                    let place = &place;
                    scope.spawn(move || {
                        let route = Resolver::new(address)
                            .timeout(PATIENCE)
                            .resolve_datagram()
                            .expect("resolve");
                        assert_eq!(route.device_name(), place.name());
                        assert_eq!(route.peer_addr(), address);
                        let mut post = Post::new(place);
                        route.start_qp(&mut post.qp).expect("RTS");
                        post.receive(1);
                        let service = route.query(&[number], PATIENCE).expect("found");
                        assert!(service.private_data.starts_with(b"welcome"));
                        let to = service.address.destination(&mut post.qp).expect("address");
                        post.send(&[number; 5], to);
                        let (answer, source) = post.next().expect("an answer");
                        assert_eq!(answer, [number + 100; 5]);
                        assert_eq!(source.qpn, service.address.qpn);
                    });
                }
                let mut post = Post::new(&place);
                for at in 0..2 {
                    let request = next(&listener);
                    assert_eq!(request.device_name(), place.name());
                    if at == 0 {
                        request.start_qp(&mut post.qp).expect("RTS");
                        assert_eq!(post.qp.state().expect("state"), QpState::RTS);
                        post.receive(6);
                    }
                    request.accept(&post.qp, b"welcome").expect("accept");
                }
                for _ in 0..2 {
                    let deadline = Instant::now() + PATIENCE;
                    let (buf, source) = loop {
                        assert!(Instant::now() < deadline, "no datagram");
                        let Some(completion) = post.cq.poll().expect("poll").next() else {
                            thread::sleep(Duration::from_millis(1));
                            continue;
                        };
                        let source = completion.source();
                        break (
                            post.qp
                                .retire(completion)
                                .expect("mine")
                                .into_buf()
                                .expect("one"),
                            source,
                        );
                    };
                    let back = post
                        .pd
                        .create_ah_from_wc(1, &source, &buf)
                        .expect("address");
                    let address = post.qp.hold_address(&back).expect("hold");
                    let qkey = ibverbs::Qkey(rdma_sys::RDMA_UDP_QKEY);
                    let answer = [buf[GRH_LEN] + 100; 5];
                    post.send(
                        &answer,
                        Destination {
                            address,
                            qpn: source.qpn,
                            qkey,
                        },
                    );
                }
                // The clients have what they waited for before the queue pair goes.
                thread::sleep(Duration::from_millis(200));
            });
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn private_data_travels_both_ways_up_to_its_limits() {
    let limits = PrivateDataLimits::DATAGRAM;
    for place in one_place_each()
        .into_iter()
        .filter(|place| !place.is_iwarp())
    {
        let listener = listen(&place);
        let address = listener.local_addr();
        let (ask, answer) = (vec![7; limits.request], vec![9; limits.reply]);
        thread::scope(|scope| {
            scope.spawn(|| {
                let request = next(&listener);
                assert_eq!(request.private_data(), ask);
                let mut post = Post::new(&place);
                request.start_qp(&mut post.qp).expect("RTS");
                request.accept(&post.qp, &answer).expect("accept");
            });
            assert_eq!(query(address, &ask).expect("found").private_data, answer);
        });
        let error = query(address, &vec![7; limits.request + 1])
            .map(drop)
            .expect_err("too long");
        assert_eq!(error.error().kind(), ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_service_refuses_in_words_and_an_absent_one_is_told() {
    for place in one_place_each()
        .into_iter()
        .filter(|place| !place.is_iwarp())
    {
        leaves_nothing(&place, || {
            let listener = listen(&place);
            let address = listener.local_addr();
            thread::scope(|scope| {
                scope.spawn(|| {
                    next(&listener).reject(b"closed for today").expect("reject");
                    drop(next(&listener));
                });
                let error = query(address, b"").expect_err("refused");
                assert_eq!(error.error().kind(), ErrorKind::Disconnected, "{error}");
                let rejection = error.rejection().expect("a rejection");
                assert!(
                    rejection.private_data.starts_with(b"closed for today"),
                    "{rejection:?}"
                );
                assert!(
                    error.to_string().contains("\"closed for today\""),
                    "{error}"
                );
                let error = query(address, b"").expect_err("dropped");
                assert!(
                    error
                        .rejection()
                        .is_some_and(|no| no.reason.is_by_application()),
                    "{error}"
                );
            });
            drop(listener);
            let error = query(address, b"").expect_err("nobody");
            assert_eq!(
                error.rejection().map(|no| no.reason),
                Some(RejectReason::INVALID_SERVICE_ID),
                "{error}"
            );
        });
    }
}

/// A group of its own for each run of a test.
fn group(place: &Place, last: u8) -> SocketAddr {
    let ip: IpAddr = if place.ip.is_ipv4() {
        IpAddr::from([239, 9, 8, last])
    } else {
        format!("ff1e::9:{last:x}").parse().expect("a group")
    };
    SocketAddr::new(ip, 0)
}

/// Where groups are: Linux has no IPv6 groups on RoCE v2.
fn places_with_groups() -> Vec<Place> {
    places()
        .into_iter()
        .filter(|place| !place.is_iwarp() && place.ip.is_ipv4())
        .collect()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_ipv6_group_on_roce_is_told_to_be_unsupported() {
    for place in places()
        .into_iter()
        .filter(|place| !place.is_iwarp() && place.ip.is_ipv6())
    {
        leaves_nothing(&place, || {
            let resolver = Resolver::new(group(&place, 5))
                .source(place.ip)
                .timeout(PATIENCE);
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
fn a_group_hears_what_is_sent_to_it_until_it_is_left() {
    for place in places_with_groups() {
        leaves_nothing(&place, || {
            let join = || {
                let resolver = Resolver::new(group(&place, 1))
                    .source(place.ip)
                    .timeout(PATIENCE);
                resolver.join(JoinAs::FULL_MEMBER).expect("join")
            };
            let mut members = Vec::new();
            for _ in 0..2 {
                let mut member = join();
                assert_eq!(member.device_name(), place.name());
                assert_eq!(member.local_addr().ip(), place.ip);
                assert_eq!(member.check_event().expect("alive"), None);
                let mut post = Post::new(&place);
                member.start_qp(&mut post.qp).expect("RTS");
                post.receive(4);
                member.attach(&mut post.qp).expect("attach");
                members.push((member, post));
            }
            assert_eq!(members[0].0.ud_address(), members[1].0.ud_address());
            let (speaker, post) = &mut members[0];
            let all = speaker.destination(&mut post.qp).expect("address");
            post.send(b"to all", all);
            for (_, post) in &mut members {
                assert_eq!(post.next().expect("heard").0, b"to all");
            }
            // One stops to listen, one leaves.
            let (listener, mut deaf) = members.pop().expect("two");
            listener.detach(&mut deaf.qp).expect("detach");
            listener.leave().expect("leave");
            let (_, post) = &mut members[0];
            post.send(b"still here", all);
            assert_eq!(post.next().expect("heard").0, b"still here");
            assert!(
                deaf.cq.poll().expect("poll").next().is_none(),
                "it hears no more"
            );
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn joining_is_abandoned_without_a_trace_and_what_is_no_group_is_told() {
    for place in places_with_groups() {
        leaves_nothing(&place, || {
            let resolver = || {
                Resolver::new(group(&place, 2))
                    .source(place.ip)
                    .timeout(PATIENCE)
            };
            drop(resolver().start_join(JoinAs::FULL_MEMBER).expect("start"));
            let mut joining = resolver().start_join(JoinAs::FULL_MEMBER).expect("start");
            while joining.try_finish().expect("join").is_none() {
                thread::yield_now();
            }
            let error = Resolver::new(SocketAddr::new(place.ip, 0))
                .join(JoinAs::FULL_MEMBER)
                .map(drop);
            assert_eq!(error.expect_err("no group").kind(), ErrorKind::InvalidInput);
            let error = resolver()
                .port_space(PortSpace::TCP)
                .join(JoinAs::FULL_MEMBER)
                .map(drop);
            assert_eq!(
                error.expect_err("connections").kind(),
                ErrorKind::InvalidInput
            );
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn to_send_only_is_joined_or_unsupported() {
    for place in places_with_groups() {
        match Resolver::new(group(&place, 3))
            .source(place.ip)
            .timeout(PATIENCE)
            .join(JoinAs::SEND_ONLY)
        {
            Ok(member) => {
                let mut post = Post::new(&place);
                member.start_qp(&mut post.qp).expect("RTS");
                let all = member.destination(&mut post.qp).expect("address");
                post.send(b"into the blue", all);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn iwarp_says_that_it_has_no_datagrams() {
    for place in one_place_each().iter().filter(|place| place.is_iwarp()) {
        leaves_nothing(place, || {
            let address = SocketAddr::new(place.ip, 7174);
            for error in [
                ListenOptions::new()
                    .bind_datagram(address)
                    .map(drop)
                    .expect_err("listen"),
                Resolver::new(address)
                    .timeout(PATIENCE)
                    .resolve_datagram()
                    .map(drop)
                    .expect_err("resolve"),
                Resolver::new(group(place, 4))
                    .source(place.ip)
                    .timeout(PATIENCE)
                    .join(JoinAs::FULL_MEMBER)
                    .map(drop)
                    .expect_err("join"),
            ] {
                println!("{error}");
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                assert!(error.to_string().contains(place.name()), "{error}");
            }
        });
    }
}
