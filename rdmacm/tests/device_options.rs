//! Options of identifiers, and what the handshake carries beside private data, on real drivers.

#![allow(
    unsafe_code,
    reason = "the attributes of a queue pair are read with the verb itself"
)]

mod lab;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use ibverbs::{AsRaw, ErrorKind, QpOptions, Rc, SrqOptions, wr};
use lab::{PATIENCE, Place, accept, connect, leaves_nothing, one_place_each, places};
use rdma_sys::{IBV_QP_AV, IBV_QP_TIMEOUT, ibv_qp_attr, ibv_qp_init_attr, ibv_query_qp};
use rdmacm::address::{IbAddr, LookupOptions, lookup};
use rdmacm::params::Ece;
use rdmacm::{
    ConnectParams, ConnectRequest, Connection, ListenOptions, Listener, PortSpace, Resolver,
};

/// What the device says of a connected queue pair.
fn attributes(connection: &Connection) -> ibv_qp_attr {
    let (mut attr, mut init) = (ibv_qp_attr::default(), ibv_qp_init_attr::default());
    let mask = (IBV_QP_TIMEOUT | IBV_QP_AV) as i32;
    // SAFETY: the queue pair is alive and both structures are valid for writing.
    let returned =
        unsafe { ibv_query_qp(connection.qp().as_raw(), &raw mut attr, mask, &raw mut init) };
    assert_eq!(returned, 0);
    attr
}

/// Connects to a listener with such a resolver.
fn pair(place: &Place, listener: &Listener, resolver: Resolver) -> (Connection, lab::Wired) {
    thread::scope(|scope| {
        let passive = scope.spawn(|| accept(listener, place.end(), b""));
        let end = place.end();
        let route = resolver.timeout(PATIENCE).resolve().expect("resolve");
        let ready = route.with_qp(end.qp()).expect("INIT");
        let active = ready
            .connect(&ConnectParams::default(), PATIENCE)
            .expect("connect");
        (active, passive.join().expect("passive side"))
    })
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn type_of_service_and_ack_timeout_reach_the_queue_pair() {
    for place in one_place_each() {
        let listener = place.listen();
        let resolver = || Resolver::new(listener.local_addr());
        if place.is_iwarp() {
            // TCP has its own timers, and its own type of service.
            drop(pair(
                &place,
                &listener,
                resolver().type_of_service(0x20).ack_timeout(17),
            ));
            continue;
        }
        let (active, _passive) = pair(
            &place,
            &listener,
            resolver().type_of_service(0x20).ack_timeout(17),
        );
        let attr = attributes(&active);
        assert_eq!(attr.timeout, 17);
        assert_eq!(attr.ah_attr.grh.traffic_class, 0x20);
        let error = resolver()
            .ack_timeout(32)
            .resolve()
            .map(drop)
            .expect_err("five bits");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_address_is_reused_only_when_both_say_so() {
    for place in places() {
        let first = place.listen();
        let address = first.local_addr();
        let error = ListenOptions::new()
            .reuse_address(true)
            .bind(address)
            .map(drop)
            .expect_err("the first listens");
        assert_eq!(
            error.errno().map(|errno| errno.0),
            Some(nix::errno::Errno::EADDRINUSE as i32),
            "{error}"
        );
        // Two ways from one source port, as long as both share.
        let source = SocketAddr::new(
            place.ip,
            20_000 + u16::try_from(std::process::id() % 10_000).expect("small"),
        );
        let from = |reuse| {
            Resolver::new(address)
                .source_addr(source)
                .reuse_address(reuse)
                .timeout(PATIENCE)
                .resolve()
        };
        let one = from(true).expect("resolve");
        assert_eq!(one.local_addr(), source);
        let two = from(true).expect("shared");
        assert_eq!(two.local_addr(), source);
        let error = from(false).map(drop).expect_err("not shared");
        assert_eq!(
            error.errno().map(|errno| errno.0),
            Some(nix::errno::Errno::EADDRINUSE as i32),
            "{error}"
        );
        assert!(error.hint().is_some(), "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_listener_of_one_family_leaves_the_port_to_the_other() {
    let places = places();
    let (v4, v6) = (
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    );
    let six = ListenOptions::new()
        .af_only(true)
        .bind(SocketAddr::new(v6, 0))
        .expect("IPv6");
    let port = six.local_addr().port();
    let four = ListenOptions::new()
        .bind(SocketAddr::new(v4, port))
        .expect("the same port for IPv4");
    for place in &places {
        let listener = if place.ip.is_ipv4() { &four } else { &six };
        drop(pair(
            place,
            listener,
            Resolver::new(SocketAddr::new(place.ip, port)),
        ));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_device_is_bound_to_by_its_name() {
    for place in places() {
        let any = if place.ip.is_ipv4() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        } else {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        };
        let listener = ListenOptions::new()
            .device(place.name())
            .bind(SocketAddr::new(any, 0))
            .expect("listen");
        let local = listener.local_addr();
        assert!(
            test_support::lab::ip_addresses(&place.context.netdev(1).expect("interface"))
                .contains(&local.ip())
                || local.is_ipv6()
        );
        let to = SocketAddr::new(place.ip, local.port());
        if local.ip() == place.ip {
            let (active, _passive) =
                pair(&place, &listener, Resolver::new(to).device(place.name()));
            assert_eq!(
                (active.device_name(), active.local_addr().ip()),
                (place.name(), place.ip)
            );
        }
        let error = Resolver::new(to)
            .device("nosuch0")
            .resolve()
            .map(drop)
            .expect_err("no such device");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        let elsewhere = ListenOptions::new()
            .device(place.name())
            .bind("192.0.2.1:0".parse().expect("an address"));
        let error = elsewhere.map(drop).expect_err("not its address");
        let text = error.to_string();
        assert!(
            text.contains(place.name()) && text.contains(&place.ip.to_string()),
            "{text}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn port_spaces_have_ports_of_their_own() {
    for place in one_place_each() {
        let tcp = place.listen();
        let address = tcp.local_addr();
        if place.is_iwarp() {
            // All ports are the host's TCP ports there.
            continue;
        }
        let ib = ListenOptions::new()
            .port_space(PortSpace::IB)
            .bind(address)
            .expect("the same number");
        let (active, passive) = pair(
            &place,
            &ib,
            Resolver::new(address).port_space(PortSpace::IB),
        );
        assert_eq!(active.peer_addr(), address);
        drop(passive);
        assert!(
            tcp.try_accept().expect("accept").is_none(),
            "it was for the other"
        );
    }
    let place = &places()[0];
    for wrong in [PortSpace::UDP, PortSpace::IPOIB] {
        let error = Resolver::new(place.listen().local_addr())
            .port_space(wrong)
            .resolve()
            .map(drop)
            .expect_err("datagrams");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let error = ListenOptions::new()
            .port_space(wrong)
            .bind(SocketAddr::new(place.ip, 0))
            .map(drop);
        assert_eq!(
            error.expect_err("datagrams").kind(),
            ErrorKind::InvalidInput
        );
    }
}

/// The request of a client that offers so much, and its end.
fn request_with(
    place: &Place,
    params: ConnectParams<'static>,
    look: impl FnOnce(ConnectRequest) + Send,
) -> Option<Connection> {
    let listener = place.listen();
    let address = listener.local_addr();
    thread::scope(|scope| {
        scope.spawn(|| {
            look(
                listener
                    .accept(Some(PATIENCE))
                    .expect("accept")
                    .expect("in time"),
            );
        });
        let end = place.end();
        let ready = Resolver::new(address)
            .timeout(PATIENCE)
            .resolve()
            .expect("resolve")
            .with_qp(end.qp())
            .expect("INIT");
        ready.connect(&params, PATIENCE).ok()
    })
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn options_of_the_drivers_travel_both_ways() {
    for place in one_place_each() {
        let (mine, yours) = (
            Ece {
                vendor_id: 0x15b3,
                options: 0x1234,
            },
            Ece {
                vendor_id: 0x15b3,
                options: 0x0034,
            },
        );
        let travels = !place.is_iwarp();
        let end = place.end();
        let active = request_with(
            &place,
            ConnectParams {
                ece: Some(mine),
                ..ConnectParams::default()
            },
            |request| {
                let seen = request.remote_ece().expect("ECE");
                assert_eq!(seen, if travels { mine } else { Ece::default() });
                let params = ConnectParams {
                    ece: Some(yours),
                    ..ConnectParams::default()
                };
                drop(
                    request
                        .with_qp(end.qp())
                        .expect("INIT")
                        .accept(&params, PATIENCE)
                        .expect("accept"),
                );
            },
        );
        let seen = active.expect("accepted").remote_ece().expect("ECE");
        assert_eq!(seen, if travels { yours } else { Ece::default() });
        let refused = request_with(&place, ConnectParams::default(), |request| {
            request.reject_ece(b"").expect("reject");
        });
        assert!(refused.is_none());
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn accepted_queue_pairs_receive_from_a_shared_queue() {
    for place in one_place_each() {
        leaves_nothing(&place, || {
            let mut end = place.end();
            let mut srq = end
                .pd
                .create_srq(SrqOptions {
                    max_wr: 16,
                    ..SrqOptions::default()
                })
                .expect("shared queue");
            for _ in 0..4 {
                srq.post_recv(wr::recv(end.pd.buf(64).expect("buffer")))
                    .expect("receive");
            }
            let listener = place.listen();
            let address = listener.local_addr();
            thread::scope(|scope| {
                let clients: Vec<_> = (0..2_u8)
                    .map(|number| {
                        let place = &place;
                        scope.spawn(move || {
                            let mut active = connect(address, place.end(), b"");
                            active.send(&[number; 8]);
                            active.retire().ok().expect("sent");
                            active.expect_disconnected();
                        })
                    })
                    .collect();
                let passive: Vec<Connection> = (0..2)
                    .map(|_| {
                        let request = listener
                            .accept(Some(PATIENCE))
                            .expect("accept")
                            .expect("in time");
                        let options = QpOptions {
                            max_send_wr: 4,
                            ..QpOptions::default()
                        };
                        let qp = end
                            .pd
                            .create_qp_with_srq::<Rc>(&end.cq, &end.cq, &srq, options)
                            .expect("queue pair");
                        request
                            .with_qp(qp)
                            .expect("INIT")
                            .accept(&ConnectParams::default(), PATIENCE)
                            .expect("accept")
                    })
                    .collect();
                let mut seen = Vec::new();
                while seen.len() < 2 {
                    let Some(completion) = end.cq.poll().expect("poll").next() else {
                        thread::sleep(Duration::from_millis(1));
                        continue;
                    };
                    let from = completion.qp_num();
                    assert!(
                        passive
                            .iter()
                            .any(|connection| connection.qp().qp_num() == from)
                    );
                    let got = srq.retire(completion).expect("of the shared queue");
                    seen.push(got.into_buf().expect("posted with one")[0]);
                }
                seen.sort_unstable();
                assert_eq!(seen, [0, 1]);
                drop(passive);
                for client in clients {
                    client.join().expect("client");
                }
            });
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_address_by_gid_is_of_infiniband_only_and_that_is_told() {
    for place in places().into_iter().filter(|place| place.ip.is_ipv6()) {
        let gid = place.context.gids(1).expect("GIDs")[0].gid;
        let address = IbAddr::new(gid, PortSpace::TCP, 7000);
        // Only InfiniBand ports have such addresses (RDMA_CORE_CAP_AF_IB).
        let from = IbAddr::new(gid, PortSpace::TCP, 0);
        for error in [
            ListenOptions::new()
                .bind_ib(address)
                .map(drop)
                .expect_err("listen"),
            Resolver::new_ib(address)
                .resolve()
                .map(drop)
                .expect_err("resolve"),
            Resolver::new_ib(address)
                .source_ib(from)
                .resolve()
                .map(drop)
                .expect_err("resolve from"),
        ] {
            println!("{}: {error}", place.name());
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
            let text = error.to_string();
            assert!(
                text.contains("service 0x1061b58") && text.contains("AF_IB"),
                "{text}"
            );
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_name_is_looked_up_and_led_to() {
    for place in places() {
        let listener = place.listen();
        let (host, port) = (
            place.ip.to_string(),
            listener.local_addr().port().to_string(),
        );
        let options = LookupOptions {
            numeric_host: true,
            ..LookupOptions::default()
        };
        let all = lookup(Some(&host), Some(&port), options).expect("an address in digits");
        let info = all
            .iter()
            .find(|info| info.destination == Some(listener.local_addr()))
            .expect("itself");
        assert_eq!(info.port_space, PortSpace::TCP);
        let route = info
            .resolver()
            .expect("somewhere")
            .timeout(PATIENCE)
            .resolve()
            .expect("resolve");
        assert_eq!(route.device_name(), place.name());
        let passive = LookupOptions {
            passive: true,
            ..options
        };
        let all = lookup(Some(&host), Some(&port), passive).expect("to listen");
        assert!(
            all.iter()
                .any(|info| info.source == Some(listener.local_addr())),
            "{all:?}"
        );
        let error = lookup(Some("no.such.host.invalid"), None, options).expect_err("no digits");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
}
