//! Connections that do not come about, on real drivers: each says why.

mod lab;

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{Error, ErrorKind, GidIndex, RcPath};
use lab::{End, PATIENCE, Place, devices, places};
use nix::ifaddrs::getifaddrs;
use rdmacm::{
    CmEventType, ConnectError, ConnectParams, ConnectRequest, Connection, Listener, RejectReason,
    Resolver,
};

fn try_connect(
    place: &Place,
    address: SocketAddr,
    timeout: Duration,
) -> Result<Connection, ConnectError> {
    let end = place.end();
    let mut ready = Resolver::new(address).resolve()?.with_qp(end.qp())?;
    end.receive_on(ready.qp_mut());
    ready.connect(&ConnectParams::default(), timeout)
}

/// What a peer sees whose request is answered so.
fn answered_by(place: &Place, answer: impl FnOnce(ConnectRequest) + Send) -> ConnectError {
    let listener = place.listen();
    let address = listener.local_addr();
    thread::scope(|scope| {
        scope.spawn(|| {
            answer(
                listener
                    .accept(Some(PATIENCE))
                    .expect("accept")
                    .expect("a request in time"),
            );
        });
        try_connect(place, address, PATIENCE).expect_err("nobody accepted")
    })
}

fn assert_rejected_by_program(error: &ConnectError) -> &[u8] {
    assert_eq!(error.error().kind(), ErrorKind::Disconnected, "{error}");
    let rejection = error.rejection().expect("a rejection");
    assert!(rejection.reason.is_by_application(), "{rejection:?}");
    &rejection.private_data
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_rejection_carries_the_reason() {
    for place in places() {
        let error = answered_by(&place, |request| {
            request.reject(b"all seats taken").expect("reject");
        });
        assert!(assert_rejected_by_program(&error).starts_with(b"all seats taken"));
        let text = error.to_string();
        assert!(
            text.contains("\"all seats taken\"") && text.contains(place.name()),
            "{text}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_unclaimed_request_is_rejected() {
    for place in places() {
        let error = answered_by(&place, drop);
        assert_rejected_by_program(&error);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_pending_request_that_is_dropped_is_rejected() {
    for place in places() {
        let error = answered_by(&place, |request| {
            drop(request.with_qp(place.end().qp()).expect("INIT"));
        });
        assert_rejected_by_program(&error);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_reason_that_is_too_long_is_an_error_and_the_peer_is_rejected() {
    for place in places() {
        let error = answered_by(&place, |request| {
            let limit = request.private_data_limits().reject;
            let error = request.reject(&vec![1; limit + 1]).expect_err("too long");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        });
        assert_rejected_by_program(&error);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_longest_reason_arrives_whole() {
    for place in places() {
        let error = answered_by(&place, |request| {
            let limit = request.private_data_limits().reject;
            request.reject(&vec![7; limit]).expect("reject");
        });
        let data = assert_rejected_by_program(&error);
        assert!(
            data.len() >= 148 && data.iter().all(|&byte| byte == 7),
            "{data:?}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn nobody_listening_is_told() {
    for place in places() {
        let address = place.listen().local_addr();
        let error = try_connect(&place, address, PATIENCE).expect_err("nobody listens");
        let rejection = error.rejection().expect("a rejection");
        assert!(rejection.reason.has_no_listener(), "{rejection:?}");
        assert_ne!(rejection.reason, RejectReason(0));
        assert!(
            error.to_string().contains("nothing listens on that port"),
            "{error}"
        );
        assert_eq!(Error::from(error).kind(), ErrorKind::Disconnected);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn nobody_answering_ends_in_time() {
    for place in places() {
        let listener = place.listen();
        let started = Instant::now();
        let error = try_connect(&place, listener.local_addr(), Duration::from_millis(300))
            .expect_err("no answer");
        assert!(
            started.elapsed() < Duration::from_secs(15),
            "{:?}",
            started.elapsed()
        );
        assert_eq!(error.error().kind(), ErrorKind::TimedOut, "{error}");
        assert!(error.rejection().is_none());
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_client_that_left_is_no_hang_for_the_server() {
    for place in places() {
        let is_iwarp = place.is_iwarp();
        let listener = place.listen();
        let _ = try_connect(&place, listener.local_addr(), Duration::from_millis(50))
            .expect_err("no answer");
        let end = place.end();
        let request = listener
            .accept(Some(PATIENCE))
            .expect("accept")
            .expect("its request");
        let started = Instant::now();
        let answered = request
            .with_qp(end.qp())
            .map_err(ConnectError::from)
            .and_then(|pending| pending.accept(&ConnectParams::default(), Duration::from_secs(1)));
        assert!(
            started.elapsed() < Duration::from_secs(15),
            "{:?}",
            started.elapsed()
        );
        match answered {
            // The kernel of an iWARP client holds the handshake after its program gave up: it
            // stands, and ends at once.
            Ok(mut passive) => {
                assert!(is_iwarp, "a connection with nobody");
                let event = passive
                    .wait_event(Some(PATIENCE))
                    .expect("wait")
                    .expect("an event in time");
                assert_eq!(event.event_type, CmEventType::DISCONNECTED);
            }
            Err(error) => {
                println!("{}: {error}", place.name());
                let kind = error.error().kind();
                assert!(
                    matches!(
                        kind,
                        ErrorKind::Disconnected | ErrorKind::TimedOut | ErrorKind::InvalidInput
                    ),
                    "{error:?}"
                );
                assert!(error.to_string().contains(place.name()), "{error}");
                assert!(
                    error.rejection().is_some() || error.error().hint().is_some(),
                    "{error}"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_address_without_a_device_is_told() {
    let rdma: Vec<String> = devices()
        .iter()
        .filter_map(|context| context.netdev(1))
        .collect();
    let deadline = Instant::now() + PATIENCE;
    let plain = loop {
        let found = getifaddrs().expect("addresses").find_map(|entry| {
            let is_plain = entry.interface_name != "lo" && !rdma.contains(&entry.interface_name);
            let address = entry.address.filter(|_| is_plain)?;
            match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => Some(SocketAddr::new(IpAddr::V4(v4.ip()), 7)),
                (_, Some(v6)) => Some(SocketAddrV6::new(v6.ip(), 7, 0, v6.scope_id()).into()),
                _ => None,
            }
        });
        if let Some(address) = found {
            break address;
        }
        assert!(
            Instant::now() < deadline,
            "no interface without RDMA has an address here"
        );
        thread::sleep(Duration::from_millis(100));
    };
    for error in [
        Resolver::new(plain).resolve().expect_err("no RDMA there"),
        Listener::bind(SocketAddr::new(plain.ip(), 0), 1)
            .map(|_| ())
            .expect_err("no RDMA there"),
    ] {
        println!("device: {}: {error}", devices()[0].device_name());
        assert!(
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput),
            "{error:?}"
        );
    }
    let error = Resolver::new(plain).resolve().expect_err("no RDMA there");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let text = error.to_string();
    assert!(
        text.contains(&plain.ip().to_string()) && text.contains("rdma link"),
        "{text}"
    );
    for context in devices() {
        assert!(text.contains(context.device_name()), "{text}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_neighbour_that_is_not_there_is_told() {
    for place in places() {
        let mut address = SocketAddr::new(place.ip, 7);
        address.set_ip(match place.ip {
            IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) ^ 0x77).into()),
            IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) ^ 0x7777).into()),
        });
        let started = Instant::now();
        let error = Resolver::new(address)
            .timeout(Duration::from_millis(500))
            .resolve()
            .expect_err("nobody there");
        assert!(
            started.elapsed() < Duration::from_secs(15),
            "{:?}",
            started.elapsed()
        );
        println!("{error}");
        assert!(error.hint().is_some(), "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_source_that_is_not_of_this_host_is_told() {
    for place in places() {
        let address = SocketAddr::new(place.ip, 7);
        // Of the ranges for documentation, which no host has; of the peer's family and of the
        // other.
        let (own, other) = if place.ip.is_ipv4() {
            ("192.0.2.1", "2001:db8::1")
        } else {
            ("2001:db8::1", "192.0.2.1")
        };
        let from = |source: &str| {
            Resolver::new(address)
                .source(source.parse().expect("address"))
                .resolve()
        };
        let error = from(own).map(drop).expect_err("not here");
        println!("{}: {error}", place.name());
        assert!(
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput),
            "{error:?}"
        );
        assert_eq!(error.verb(), "rdma_resolve_addr");
        assert!(
            error.to_string().contains(&address.to_string()) && error.hint().is_some(),
            "{error}"
        );
        let error = from(other).map(drop).expect_err("two families");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
        assert!(
            error.to_string().contains("addresses of two families"),
            "{error}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_port_that_is_taken_is_told() {
    for place in places() {
        let first = place.listen();
        let error = Listener::bind(first.local_addr(), 1)
            .map(|_| ())
            .expect_err("taken");
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
fn private_data_that_is_too_long_is_told() {
    for place in places() {
        let listener = place.listen();
        let end = place.end();
        let ready = Resolver::new(listener.local_addr())
            .resolve()
            .expect("resolve")
            .with_qp(end.qp())
            .expect("INIT");
        let params = ConnectParams {
            private_data: &[0; 252],
            ..ConnectParams::default()
        };
        let error = ready
            .connect(&params, PATIENCE)
            .map(drop)
            .expect_err("too long");
        assert_eq!(error.error().kind(), ErrorKind::InvalidInput, "{error}");
        assert!(
            error.to_string().contains("252 bytes of private data"),
            "{error}"
        );
        assert!(
            listener
                .accept(Some(Duration::from_millis(50)))
                .expect("accept")
                .is_none(),
            "nothing was sent"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_queue_pair_of_another_device_is_refused_by_both_names() {
    let places = places();
    for place in &places {
        let Some(other) = places.iter().find(|other| other.name() != place.name()) else {
            println!("only one device here");
            return;
        };
        let end = End::new(&other.context);
        let listener = place.listen();
        let route = Resolver::new(listener.local_addr())
            .resolve()
            .expect("resolve");
        let error = route
            .with_qp(end.qp())
            .map(drop)
            .expect_err("of two devices");
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        let text = error.to_string();
        assert!(
            text.contains(place.name()) && text.contains(other.name()),
            "{text}"
        );

        let swapped = Resolver::new(listener.local_addr())
            .resolve()
            .expect("resolve");
        let own = place.end();
        let mut ready = swapped.with_qp(own.qp()).expect("INIT");
        *ready.qp_mut() = own.qp();
        let error = ready
            .connect(&ConnectParams::default(), PATIENCE)
            .map(drop)
            .expect_err("another queue pair");
        assert_eq!(error.error().kind(), ErrorKind::Mismatch, "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_queue_pair_that_is_not_fresh_is_refused() {
    for place in places() {
        let end = place.end();
        let route = || {
            Resolver::new(SocketAddr::new(place.ip, 7))
                .resolve()
                .expect("resolve")
        };
        let mut qp = end.qp();
        let port = place.context.query_port(1).expect("port");
        qp.init(&RcPath::new(1, GidIndex(0), port.active_mtu))
            .expect("INIT");
        qp.to_error().expect("ERR");
        let error = route()
            .with_qp(qp)
            .map(drop)
            .expect_err("ERR does not lead to INIT");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}
