//! Options of resolvers and listeners, and handshake parameters other than private data, on real
//! drivers.

#![allow(
    unsafe_code,
    reason = "queue pair attributes are read with the C function"
)]

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use ibverbs::{ErrorKind, QpOptions, Rc, SrqOptions, wr};
use rdma_sys::{IBV_QP_AV, IBV_QP_TIMEOUT, ibv_qp_attr, ibv_qp_init_attr, ibv_query_qp};
use rdmacm::address::{IbAddr, LookupOptions, lookup};
use rdmacm::params::Ece;
use rdmacm::{
    ConnectParams, ConnectRequest, Connection, ListenOptions, Listener, PortSpace, Resolver,
};

use crate::lab::{
    self, Endpoint, TIMEOUT, accept, connect, endpoints, leak_checked, one_endpoint_each,
};

/// Queries the timeout and the address vector of a connected queue pair.
fn attributes(connection: &Connection) -> ibv_qp_attr {
    let (mut attr, mut init) = (ibv_qp_attr::default(), ibv_qp_init_attr::default());
    let mask = (IBV_QP_TIMEOUT | IBV_QP_AV) as i32;
    let qp = connection.qp().as_raw().expect("alive").as_ptr();
    // SAFETY: the queue pair is alive, and both structures are valid for writing.
    let returned = unsafe { ibv_query_qp(qp, &raw mut attr, mask, &raw mut init) };
    assert_eq!(returned, 0);
    attr
}

/// Connects to `listener` with `resolver`. Returns the active and the passive side.
fn connect_with(
    endpoint: &Endpoint,
    listener: &Listener,
    resolver: Resolver,
) -> (Connection, lab::Peer) {
    thread::scope(|scope| {
        let passive = scope.spawn(|| accept(listener, endpoint.resources(), b""));
        let resources = endpoint.resources();
        let route = resolver.timeout(TIMEOUT).resolve().expect("resolve");
        let ready = route.with_qp(resources.qp()).expect("INIT");
        let active = ready
            .connect(&ConnectParams::default(), TIMEOUT)
            .expect("connect");
        (active, passive.join().expect("passive side"))
    })
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn type_of_service_and_ack_timeout_reach_the_queue_pair() {
    for endpoint in one_endpoint_each() {
        let listener = endpoint.listen();
        let resolver = || Resolver::new(listener.local_addr());
        if endpoint.is_iwarp() {
            // The options are accepted, but have no effect on the queue pair.
            drop(connect_with(
                &endpoint,
                &listener,
                resolver().type_of_service(0x20).ack_timeout(17),
            ));
            continue;
        }
        let (active, _passive) = connect_with(
            &endpoint,
            &listener,
            resolver().type_of_service(0x20).ack_timeout(17),
        );
        let attr = attributes(&active);
        assert_eq!(attr.timeout, 17);
        // On an InfiniBand link it is that of global routes. Paths within a subnet have none.
        let expected = if endpoint.is_infiniband() { 0 } else { 0x20 };
        assert_eq!(attr.ah_attr.grh.traffic_class, expected);
        let error = resolver()
            .ack_timeout(32)
            .resolve()
            .map(drop)
            .expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_address_is_reused_only_if_both_allow_it() {
    for endpoint in endpoints() {
        let first = endpoint.listen();
        let address = first.local_addr();
        let error = ListenOptions::new()
            .reuse_address(true)
            .bind(address)
            .map(drop)
            .expect_err("the address is in use");
        assert_eq!(
            error.errno().map(|errno| errno.0),
            Some(nix::errno::Errno::EADDRINUSE as i32),
            "{error}"
        );
        // Two routes can share a source port if both allow it.
        let source = SocketAddr::new(
            endpoint.ip,
            20_000 + u16::try_from(std::process::id() % 10_000).expect("small"),
        );
        let from = |reuse| {
            Resolver::new(address)
                .source_addr(source)
                .reuse_address(reuse)
                .timeout(TIMEOUT)
                .resolve()
        };
        let first_route = from(true).expect("resolve");
        assert_eq!(first_route.local_addr(), source);
        let second_route = from(true).expect("shared");
        assert_eq!(second_route.local_addr(), source);
        let error = from(false).map(drop).expect_err("reuse is not allowed");
        assert_eq!(
            error.errno().map(|errno| errno.0),
            Some(nix::errno::Errno::EADDRINUSE as i32),
            "{error}"
        );
        assert!(error.help().is_some(), "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn af_only_leaves_the_port_to_the_other_family() {
    let endpoints = endpoints();
    let (v4, v6) = (
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    );
    let ipv6 = ListenOptions::new()
        .af_only(true)
        .bind(SocketAddr::new(v6, 0))
        .expect("IPv6");
    let port = ipv6.local_addr().port();
    let ipv4 = ListenOptions::new()
        .bind(SocketAddr::new(v4, port))
        .expect("the same port for IPv4");
    for endpoint in &endpoints {
        let listener = if endpoint.ip.is_ipv4() { &ipv4 } else { &ipv6 };
        drop(connect_with(
            endpoint,
            listener,
            Resolver::new(SocketAddr::new(endpoint.ip, port)),
        ));
    }
}

/// The range of the ports that the system selects. The previous one is restored on drop.
struct PortRange(String);

impl PortRange {
    const FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

    fn set(range: &str) -> Self {
        let previous = fs::read_to_string(Self::FILE).expect("the range of ports");
        fs::write(Self::FILE, range).expect("a range of ports");
        Self(previous)
    }
}

impl Drop for PortRange {
    fn drop(&mut self) {
        fs::write(Self::FILE, &self.0).expect("a range of ports");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_selected_port_is_free_for_tcp_too() {
    const PORTS: RangeInclusive<u16> = 47_000..=47_007;
    for endpoint in one_endpoint_each() {
        if !endpoint.is_iwarp() {
            continue; // these ports are not those of TCP
        }
        let _range = PortRange::set(&format!("{} {}", PORTS.start(), PORTS.end()));
        let even = PORTS.filter(|port| port % 2 == 0);
        let _taken: Vec<TcpListener> = even
            .map(|port| TcpListener::bind((endpoint.ip, port)).expect("a free port"))
            .collect();
        for _ in 0..30 {
            let listener = endpoint.listen();
            assert!(PORTS.contains(&listener.local_addr().port()));
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_device_is_selected_by_its_name() {
    for endpoint in endpoints() {
        let any = if endpoint.ip.is_ipv4() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        } else {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        };
        let listener = ListenOptions::new()
            .device(endpoint.name())
            .bind(SocketAddr::new(any, 0))
            .expect("listen");
        let local = listener.local_addr();
        assert!(
            test_support::lab::ip_addresses(&endpoint.context.netdev(1).expect("interface"))
                .contains(&local.ip())
                || local.is_ipv6()
        );
        let address = SocketAddr::new(endpoint.ip, local.port());
        if local.ip() == endpoint.ip {
            let (active, _passive) = connect_with(
                &endpoint,
                &listener,
                Resolver::new(address).device(endpoint.name()),
            );
            assert_eq!(
                (active.device_name(), active.local_addr().ip()),
                (endpoint.name(), endpoint.ip)
            );
        }
        let error = Resolver::new(address)
            .device("nosuch0")
            .resolve()
            .map(drop)
            .expect_err("no such device");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        let result = ListenOptions::new()
            .device(endpoint.name())
            .bind("192.0.2.1:0".parse().expect("an address"));
        let error = result.map(drop).expect_err("not an address of the device");
        let text = error.to_string();
        assert!(
            text.contains(endpoint.name()) && text.contains(&endpoint.ip.to_string()),
            "{text}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn port_spaces_have_separate_ports() {
    for endpoint in one_endpoint_each() {
        let tcp = endpoint.listen();
        let address = tcp.local_addr();
        if endpoint.is_iwarp() {
            // On iWARP all port spaces share the TCP ports of the host.
            continue;
        }
        let ib = ListenOptions::new()
            .port_space(PortSpace::IB)
            .bind(address)
            .expect("the same number");
        let (active, passive) = connect_with(
            &endpoint,
            &ib,
            Resolver::new(address).port_space(PortSpace::IB),
        );
        assert_eq!(active.peer_addr(), address);
        drop(passive);
        assert!(
            tcp.try_request().expect("accept").is_none(),
            "the request was for the other listener"
        );
    }
    let endpoint = &endpoints()[0];
    for wrong in [PortSpace::UDP, PortSpace::IPOIB] {
        let error = Resolver::new(endpoint.listen().local_addr())
            .port_space(wrong)
            .resolve()
            .map(drop)
            .expect_err("datagrams");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let error = ListenOptions::new()
            .port_space(wrong)
            .bind(SocketAddr::new(endpoint.ip, 0))
            .map(drop);
        assert_eq!(
            error.expect_err("datagrams").kind(),
            ErrorKind::InvalidInput
        );
    }
}

/// Connects with `params` to a listener whose thread passes the request to `respond`. Returns the
/// connection of the active side, or `None` if the request was rejected.
fn request_with(
    endpoint: &Endpoint,
    params: ConnectParams<'static>,
    respond: impl FnOnce(ConnectRequest) + Send,
) -> Option<Connection> {
    let listener = endpoint.listen();
    let address = listener.local_addr();
    thread::scope(|scope| {
        scope.spawn(|| {
            respond(lab::request(&listener));
        });
        let resources = endpoint.resources();
        let ready = Resolver::new(address)
            .timeout(TIMEOUT)
            .resolve()
            .expect("resolve")
            .with_qp(resources.qp())
            .expect("INIT");
        ready.connect(&params, TIMEOUT).ok()
    })
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn ece_options_reach_both_sides() {
    for endpoint in one_endpoint_each() {
        let (active_ece, passive_ece) = (
            Ece {
                vendor_id: 0x15b3,
                options: 0x1234,
            },
            Ece {
                vendor_id: 0x15b3,
                options: 0x0034,
            },
        );
        let ece_is_supported = !endpoint.is_iwarp();
        let resources = endpoint.resources();
        let active = request_with(&endpoint, ConnectParams::new().ece(active_ece), |request| {
            let received = request.remote_ece().expect("ECE");
            assert_eq!(
                received,
                if ece_is_supported {
                    active_ece
                } else {
                    Ece::default()
                }
            );
            let params = ConnectParams::new().ece(passive_ece);
            drop(
                request
                    .with_qp(resources.qp())
                    .expect("INIT")
                    .accept(&params, TIMEOUT)
                    .expect("accept"),
            );
        });
        let received = active.expect("accepted").remote_ece().expect("ECE");
        assert_eq!(
            received,
            if ece_is_supported {
                passive_ece
            } else {
                Ece::default()
            }
        );
        let rejected = request_with(&endpoint, ConnectParams::default(), |request| {
            request.reject_ece(b"").expect("reject");
        });
        assert!(rejected.is_none());
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn accepted_queue_pairs_use_a_shared_receive_queue() {
    for endpoint in leak_checked(one_endpoint_each()) {
        let mut resources = endpoint.resources();
        let mut srq = resources
            .pd
            .create_srq(SrqOptions::new().max_wr(16))
            .expect("shared receive queue");
        for _ in 0..4 {
            srq.post_recv(wr::recv(resources.pd.buf(64).expect("buffer")))
                .expect("receive");
        }
        let listener = endpoint.listen();
        let address = listener.local_addr();
        thread::scope(|scope| {
            let clients: Vec<_> = (0..2_u8)
                .map(|number| {
                    let endpoint = &endpoint;
                    scope.spawn(move || {
                        let mut active = connect(address, endpoint.resources(), b"");
                        active.send(&[number; 8]);
                        active.retire().check().expect("sent");
                        active.expect_disconnected_after_first();
                    })
                })
                .collect();
            let passive: Vec<Connection> = (0..2)
                .map(|_| {
                    let request = lab::request(&listener);
                    let options = QpOptions::new().max_send_wr(4);
                    let qp = resources
                        .pd
                        .create_qp_with_srq::<Rc>(&resources.cq, &resources.cq, &srq, options)
                        .expect("queue pair");
                    request
                        .with_qp(qp)
                        .expect("INIT")
                        .accept(&ConnectParams::default(), TIMEOUT)
                        .expect("accept")
                })
                .collect();
            let mut received = Vec::new();
            while received.len() < 2 {
                let Some(completion) = resources.cq.poll().expect("poll").next() else {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                };
                let qp_num = completion.qp_num();
                assert!(
                    passive
                        .iter()
                        .any(|connection| connection.qp().qp_num() == qp_num)
                );
                let retired = srq
                    .retire(completion)
                    .expect("a completion of the shared queue");
                received.push(retired.into_buf().expect("the posted buffer")[0]);
            }
            received.sort_unstable();
            assert_eq!(received, [0, 1]);
            drop(passive);
            for client in clients {
                client.join().expect("client");
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn ib_addresses_need_infiniband() {
    for endpoint in endpoints()
        .into_iter()
        .filter(|endpoint| endpoint.ip.is_ipv6())
    {
        let gid = endpoint.context.gids(1).expect("GIDs")[0].gid;
        let address = IbAddr::new(gid, PortSpace::TCP, 7000);
        // Only InfiniBand ports have `AF_IB` addresses (RDMA_CORE_CAP_AF_IB).
        let source = IbAddr::new(gid, PortSpace::TCP, 0);
        if endpoint.is_infiniband() {
            let listener = ListenOptions::new().bind_ib(address).expect("listen");
            let resolver = Resolver::new_ib(address).source_ib(source);
            let (active, _passive) = connect_with(&endpoint, &listener, resolver);
            assert_eq!(active.device_name(), endpoint.name());
            continue;
        }
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
                .source_ib(source)
                .resolve()
                .map(drop)
                .expect_err("resolve with a source"),
        ] {
            println!("{}: {error}", endpoint.name());
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
fn a_name_is_looked_up_and_resolved() {
    for endpoint in endpoints() {
        let listener = endpoint.listen();
        let (host, port) = (
            endpoint.ip.to_string(),
            listener.local_addr().port().to_string(),
        );
        let options = LookupOptions::new().numeric_host(true);
        let addresses = lookup(Some(&host), Some(&port), options).expect("a numeric address");
        let info = addresses
            .iter()
            .find(|info| info.destination == Some(listener.local_addr()))
            .expect("the listener");
        assert_eq!(info.port_space, PortSpace::TCP);
        let route = info
            .resolver()
            .expect("a destination")
            .timeout(TIMEOUT)
            .resolve()
            .expect("resolve");
        assert_eq!(route.device_name(), endpoint.name());
        let passive = options.passive(true);
        let addresses = lookup(Some(&host), Some(&port), passive).expect("an address to listen on");
        assert!(
            addresses
                .iter()
                .any(|info| info.source == Some(listener.local_addr())),
            "{addresses:?}"
        );
        let error = lookup(Some("no.such.host.invalid"), None, options).expect_err("not numeric");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
}
