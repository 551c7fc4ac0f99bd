//! Connections that cannot be established, on real drivers: every error reports its cause.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{Device, Error, ErrorKind, GidIndex, RcPath};
use nix::ifaddrs::getifaddrs;
use rdmacm::{
    CmEventType, ConnectError, ConnectParams, ConnectRequest, Connection, Listener, RejectReason,
    Resolver,
};
use test_support::lab::{is_model, netdev, report_no_device};
use test_support::process;

use crate::lab::{self, Endpoint, Resources, TIMEOUT, devices, endpoints};

fn try_connect(
    endpoint: &Endpoint,
    address: SocketAddr,
    timeout: Duration,
) -> Result<Connection, ConnectError> {
    let resources = endpoint.resources();
    let mut ready = Resolver::new(address).resolve()?.with_qp(resources.qp())?;
    resources.receive_on(ready.qp_mut());
    ready.connect(&ConnectParams::default(), timeout)
}

/// Returns the client's error after its request was handled by `respond`.
fn error_after(endpoint: &Endpoint, respond: impl FnOnce(ConnectRequest) + Send) -> ConnectError {
    let listener = endpoint.listen();
    let address = listener.local_addr();
    thread::scope(|scope| {
        scope.spawn(|| {
            respond(lab::request(&listener));
        });
        try_connect(endpoint, address, TIMEOUT).expect_err("not accepted")
    })
}

fn assert_rejected_by_application(error: &ConnectError) -> &[u8] {
    assert_eq!(error.error().kind(), ErrorKind::Disconnected, "{error}");
    let rejection = error.rejection().expect("a rejection");
    assert!(rejection.reason.is_by_application(), "{rejection:?}");
    &rejection.private_data
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_rejection_carries_the_reason() {
    for endpoint in endpoints() {
        let error = error_after(&endpoint, |request| {
            request.reject(b"no free slots").expect("reject");
        });
        assert!(assert_rejected_by_application(&error).starts_with(b"no free slots"));
        let text = error.to_string();
        assert!(
            text.contains("\"no free slots\"") && text.contains(endpoint.name()),
            "{text}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_dropped_request_is_rejected() {
    for endpoint in endpoints() {
        let error = error_after(&endpoint, drop);
        assert_rejected_by_application(&error);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_dropped_ready_request_is_rejected() {
    for endpoint in endpoints() {
        let error = error_after(&endpoint, |request| {
            drop(request.with_qp(endpoint.resources().qp()).expect("INIT"));
        });
        assert_rejected_by_application(&error);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_too_long_reason_still_rejects_the_request() {
    for endpoint in endpoints() {
        let error = error_after(&endpoint, |request| {
            let limit = request.private_data_limits().reject;
            let error = request.reject(&vec![1; limit + 1]).expect_err("too long");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        });
        assert_rejected_by_application(&error);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_longest_reason_arrives_complete() {
    for endpoint in endpoints() {
        let error = error_after(&endpoint, |request| {
            let limit = request.private_data_limits().reject;
            request.reject(&vec![7; limit]).expect("reject");
        });
        let data = assert_rejected_by_application(&error);
        assert!(
            data.len() >= 148 && data.iter().all(|&byte| byte == 7),
            "{data:?}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn no_listener_is_reported() {
    for endpoint in endpoints() {
        let address = endpoint.listen().local_addr();
        let error = try_connect(&endpoint, address, TIMEOUT).expect_err("no listener");
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
fn no_answer_is_a_timeout() {
    for endpoint in endpoints() {
        let listener = endpoint.listen();
        let started = Instant::now();
        let error = try_connect(&endpoint, listener.local_addr(), Duration::from_millis(300))
            .expect_err("no response");
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
fn a_client_that_gave_up_does_not_block_the_server() {
    for endpoint in endpoints() {
        let is_iwarp = endpoint.is_iwarp();
        let listener = endpoint.listen();
        let _ = try_connect(&endpoint, listener.local_addr(), Duration::from_millis(50))
            .expect_err("no response");
        let resources = endpoint.resources();
        let request = lab::request(&listener);
        let started = Instant::now();
        let result = request
            .with_qp(resources.qp())
            .map_err(ConnectError::from)
            .and_then(|ready_request| {
                ready_request.accept(&ConnectParams::default(), Duration::from_secs(1))
            });
        assert!(
            started.elapsed() < Duration::from_secs(15),
            "{:?}",
            started.elapsed()
        );
        match result {
            // The kernel of an iWARP client completes the handshake after its application has given
            // up. The connection is established and ends immediately.
            Ok(mut passive) => {
                assert!(is_iwarp, "a connection to a client that gave up");
                let event = passive
                    .wait_event(Some(TIMEOUT))
                    .expect("wait")
                    .expect("an event in time");
                assert_eq!(event.event_type, CmEventType::DISCONNECTED);
            }
            Err(error) => {
                println!("{}: {error}", endpoint.name());
                let kind = error.error().kind();
                assert!(
                    matches!(
                        kind,
                        ErrorKind::Disconnected | ErrorKind::TimedOut | ErrorKind::InvalidInput
                    ),
                    "{error:?}"
                );
                assert!(error.to_string().contains(endpoint.name()), "{error}");
                assert!(
                    error.rejection().is_some() || error.error().help().is_some(),
                    "{error}"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_address_without_a_device_is_reported() {
    let rdma: Vec<String> = Device::list()
        .expect("devices")
        .iter()
        .filter_map(|device| device.open().expect("context").netdev(1))
        .collect();
    let deadline = Instant::now() + TIMEOUT;
    let plain = loop {
        let address = getifaddrs().expect("addresses").find_map(|entry| {
            let is_candidate =
                entry.interface_name != "lo" && !rdma.contains(&entry.interface_name);
            let address = entry.address.filter(|_| is_candidate)?;
            match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => Some(SocketAddr::new(IpAddr::V4(v4.ip()), 7)),
                (_, Some(v6)) => Some(SocketAddrV6::new(v6.ip(), 7, 0, v6.scope_id()).into()),
                _ => None,
            }
        });
        if let Some(address) = address {
            break address;
        }
        assert!(
            Instant::now() < deadline,
            "no interface without an RDMA device has an address"
        );
        thread::sleep(Duration::from_millis(100));
    };
    for error in [
        Resolver::new(plain).resolve().expect_err("no RDMA device"),
        Listener::bind(SocketAddr::new(plain.ip(), 0), 1)
            .map(|_| ())
            .expect_err("no RDMA device"),
    ] {
        println!("device: {}: {error}", devices()[0].device_name());
        assert!(
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput),
            "{error:?}"
        );
    }
    let error = Resolver::new(plain).resolve().expect_err("no RDMA device");
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
fn an_unreachable_neighbour_is_reported() {
    for endpoint in endpoints() {
        let mut address = SocketAddr::new(endpoint.ip, 7);
        address.set_ip(match endpoint.ip {
            IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) ^ 0x77).into()),
            IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) ^ 0x7777).into()),
        });
        let started = Instant::now();
        let error = Resolver::new(address)
            .timeout(Duration::from_millis(500))
            .resolve()
            .expect_err("unreachable");
        assert!(
            started.elapsed() < Duration::from_secs(15),
            "{:?}",
            started.elapsed()
        );
        println!("{error}");
        assert!(error.help().is_some(), "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_source_of_another_host_is_reported() {
    for endpoint in endpoints() {
        let address = SocketAddr::new(endpoint.ip, 7);
        // Addresses reserved for documentation, which no host has. One is of the peer's family, the
        // other is not.
        let (own, other) = if endpoint.ip.is_ipv4() {
            ("192.0.2.1", "2001:db8::1")
        } else {
            ("2001:db8::1", "192.0.2.1")
        };
        let from = |source: &str| {
            Resolver::new(address)
                .source(source.parse().expect("address"))
                .resolve()
        };
        let error = from(own)
            .map(drop)
            .expect_err("not an address of this host");
        println!("{}: {error}", endpoint.name());
        assert!(
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput),
            "{error:?}"
        );
        assert_eq!(error.call(), "rdma_resolve_addr");
        assert!(
            error.to_string().contains(&address.to_string()) && error.help().is_some(),
            "{error}"
        );
        let error = from(other).map(drop).expect_err("two families");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
        assert!(
            error
                .to_string()
                .contains("the addresses are of different families"),
            "{error}"
        );
    }
}

/// Returns the bytes of the port's GID, as the end of an address of IPoIB.
fn own_gid(endpoint: &Endpoint) -> String {
    let gid = endpoint.context.gids(1).expect("GIDs")[0].gid;
    let bytes = gid.as_ipv6().octets().map(|byte| format!("{byte:02x}"));
    bytes.join(":")
}

/// The kernel's attempts to resolve an address are shorter than the time limits here.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn address_is_resolved_until_the_time_limit() {
    if is_model() {
        return report_no_device("the model needs no link-layer address of the peer");
    }
    for endpoint in endpoints() {
        let IpAddr::V4(own) = endpoint.ip else {
            continue;
        };
        let [a, b, c, _] = own.octets();
        // No host of the lab has this address.
        let peer = IpAddr::from([a, b, c, 200]);
        let netdev = netdev(endpoint.name());
        let resolve = |timeout| {
            let started = Instant::now();
            let resolver = Resolver::new(SocketAddr::new(peer, 7)).timeout(timeout);
            (resolver.resolve().map(drop), started.elapsed())
        };

        let limit = Duration::from_millis(700);
        let (result, elapsed) = resolve(limit);
        let error = result.expect_err("no such host");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert_eq!(error.call(), "rdma_resolve_addr");
        assert!((limit..10 * limit).contains(&elapsed), "{elapsed:?}");

        let appears = limit;
        let (result, elapsed) = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(appears);
                let link_layer = if endpoint.is_infiniband() {
                    format!("80:01:00:04:{}", own_gid(&endpoint))
                } else {
                    "02:00:00:00:00:01".to_owned()
                };
                let entry = format!("{peer} lladdr {link_layer} dev {netdev} nud permanent");
                process::run_line(&format!("ip neigh replace {entry}"));
            });
            resolve(TIMEOUT)
        });
        process::run_line(&format!("ip neigh delete {peer} dev {netdev}"));
        result.expect("resolved when the address appears");
        assert!((appears..TIMEOUT).contains(&elapsed), "{elapsed:?}");
    }
}

/// A server that is busy between the request and `accept`, for example because it registers memory.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_remedy_of_a_missing_answer_fits_the_path() {
    for endpoint in endpoints() {
        let listener = endpoint.listen();
        let resources = endpoint.resources();
        let connect = |timeout| {
            let route = Resolver::new(listener.local_addr())
                .timeout(TIMEOUT)
                .resolve();
            let ready = route
                .expect("resolve")
                .with_qp(resources.qp())
                .expect("INIT");
            let error = ready.connect(&ConnectParams::default(), timeout);
            Error::from(error.expect_err("no answer"))
        };
        let mut errors = vec![connect(Duration::from_millis(500))];
        if endpoint.is_iwarp() {
            // The kernel gives up before the application.
            errors.push(connect(Duration::from_secs(60)));
        }
        for error in errors {
            println!("{}: {error}", endpoint.name());
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
            let help = error.help().expect("a remedy");
            assert!(help.contains("register memory before listening"), "{error}");
            let is_roce = !endpoint.is_iwarp() && !endpoint.is_infiniband();
            assert_eq!(help.contains("UDP port 4791"), is_roce, "{error}");
            assert!(
                !endpoint.is_iwarp() || !help.contains("firewall"),
                "{error}"
            );
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_port_in_use_is_reported() {
    for endpoint in endpoints() {
        let first = endpoint.listen();
        let error = Listener::bind(first.local_addr(), 1)
            .map(|_| ())
            .expect_err("in use");
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
fn too_long_private_data_is_reported() {
    for endpoint in endpoints() {
        let listener = endpoint.listen();
        let resources = endpoint.resources();
        let ready = Resolver::new(listener.local_addr())
            .resolve()
            .expect("resolve")
            .with_qp(resources.qp())
            .expect("INIT");
        let params = ConnectParams::new().private_data(&[0; 252]);
        let error = ready
            .connect(&params, TIMEOUT)
            .map(drop)
            .expect_err("too long");
        assert_eq!(error.error().kind(), ErrorKind::InvalidInput, "{error}");
        assert!(
            error.to_string().contains("252 bytes of private data"),
            "{error}"
        );
        assert!(
            listener
                .next_request(Some(Duration::from_millis(50)))
                .expect("accept")
                .is_none(),
            "nothing was sent"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_queue_pair_of_another_device_is_rejected() {
    let endpoints = endpoints();
    for endpoint in &endpoints {
        let Some(other) = endpoints
            .iter()
            .find(|other| other.name() != endpoint.name())
        else {
            println!("skipped: only one device");
            return;
        };
        let resources = Resources::new(&other.context);
        let listener = endpoint.listen();
        let route = Resolver::new(listener.local_addr())
            .resolve()
            .expect("resolve");
        let error = route
            .with_qp(resources.qp())
            .map(drop)
            .expect_err("a queue pair of another device");
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        let text = error.to_string();
        assert!(
            text.contains(endpoint.name()) && text.contains(other.name()),
            "{text}"
        );

        let swapped = Resolver::new(listener.local_addr())
            .resolve()
            .expect("resolve");
        let own = endpoint.resources();
        let mut ready = swapped.with_qp(own.qp()).expect("INIT");
        *ready.qp_mut() = own.qp();
        let error = ready
            .connect(&ConnectParams::default(), TIMEOUT)
            .map(drop)
            .expect_err("another queue pair");
        assert_eq!(error.error().kind(), ErrorKind::Mismatch, "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_used_queue_pair_is_rejected() {
    for endpoint in endpoints() {
        let resources = endpoint.resources();
        let route = || {
            Resolver::new(SocketAddr::new(endpoint.ip, 7))
                .resolve()
                .expect("resolve")
        };
        let mut qp = resources.qp();
        let port = endpoint.context.query_port(1).expect("port");
        qp.init(&RcPath::new(1, GidIndex(0), port.active_mtu))
            .expect("INIT");
        qp.to_error().expect("ERR");
        let error = route()
            .with_qp(qp)
            .map(drop)
            .expect_err("a queue pair in ERR");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}
