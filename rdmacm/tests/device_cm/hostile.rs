//! Hostile peers on real drivers. Whatever they do, this side does not hang, leaks nothing, and
//! serves the next client.

#![allow(unsafe_code, reason = "the hostile peers use the C library directly")]

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{ptr, thread};

use nix::sys::socket::SockaddrStorage;
use rdma_sys::{
    RDMA_PS_TCP, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_connect,
    rdma_create_event_channel, rdma_create_id, rdma_get_cm_event, rdma_resolve_addr,
    rdma_resolve_route,
};
use rdmacm::{ConnectError, ConnectParams, InProgress, Listener, Resolver};
use test_support::process;

use crate::lab::{
    self, Endpoint, TIMEOUT, accept, connect, endpoints, forget, leak_checked, one_endpoint_each,
};

const PEER: &str = "RDMACM_TEST_HOSTILE";
/// Time limit for a client to complete its connection, and then to send.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the well-behaved client to be served, with retries.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of listeners of a test, because Soft-iWARP can close them.
const LISTENERS: u32 = 10;

/// Runs this program again as a hostile peer of a listener, and waits until it has acted.
fn peer(behaviour: &str, address: SocketAddr) -> Child {
    let mut child = process::ignored_test("hostile::hostile_peer")
        .env(PEER, format!("{behaviour} {address}"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the peer process");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    assert!(
        output
            .lines()
            .any(|line| line.expect("text").ends_with("peer ready")),
        "{behaviour}"
    );
    child
}

fn kill(mut peer: Child) {
    peer.kill().expect("kill");
    peer.wait().expect("wait");
}

/// Not a test: the process of a hostile peer.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn hostile_peer() {
    let Ok(task) = std::env::var(PEER) else {
        return println!("device: none (helper process of other tests)");
    };
    let (behaviour, address) = task.rsplit_once(' ').expect("a behaviour and an address");
    let address: SocketAddr = address.parse().expect("an address");
    let endpoint = endpoints()
        .into_iter()
        .find(|endpoint| endpoint.ip == address.ip())
        .expect("the address");
    let resources = endpoint.resources();
    match behaviour {
        "vanish" => {
            let ready = Resolver::new(address)
                .timeout(TIMEOUT)
                .resolve()
                .expect("resolve")
                .with_qp(resources.qp());
            let _connecting = ready
                .expect("INIT")
                .start(&ConnectParams::default())
                .expect("start");
            println!("peer ready");
            thread::sleep(TIMEOUT);
        }
        "never acknowledge" => {
            let _kept = connect_without_acknowledging(address, &[]);
            println!("peer ready");
            thread::sleep(TIMEOUT);
        }
        "too much private data" => {
            let returned = connect_without_acknowledging(address, &[7; 255]);
            println!("rdma_connect returned {returned}: peer ready");
            thread::sleep(TIMEOUT);
        }
        other => panic!("{other}"),
    }
}

/// Connects without a queue pair and never acknowledges an event. Returns the result of
/// `rdma_connect`.
fn connect_without_acknowledging(address: SocketAddr, private_data: &[u8]) -> i32 {
    let storage = SockaddrStorage::from(address);
    let mut id: *mut rdma_cm_id = ptr::null_mut();
    let mut event: *mut rdma_cm_event = ptr::null_mut();
    // SAFETY: the functions are called as their manual pages describe, on objects that live as long
    // as the process.
    unsafe {
        let channel = rdma_create_event_channel();
        assert!(!channel.is_null());
        assert_eq!(
            rdma_create_id(channel, &raw mut id, ptr::null_mut(), RDMA_PS_TCP),
            0
        );
        assert_eq!(
            rdma_resolve_addr(
                id,
                ptr::null_mut(),
                (&raw const storage).cast_mut().cast(),
                5000
            ),
            0
        );
        assert_eq!(rdma_get_cm_event(channel, &raw mut event), 0);
        assert_eq!(rdma_resolve_route(id, 5000), 0);
        assert_eq!(rdma_get_cm_event(channel, &raw mut event), 0);
        let mut param = rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len: u8::try_from(private_data.len()).expect("short"),
            retry_count: 7,
            qp_num: 4711,
            ..Default::default()
        };
        rdma_connect(id, &raw mut param)
    }
}

/// Lets a hostile peer attack a listener, and serves a well-behaved client. `attack` returns the
/// peer if it is to be killed afterwards.
///
/// Soft-iWARP closes a listener if a peer ends its TCP connection before the driver has accepted it
/// (`docs/drivers.md`, fault 61). Then all is repeated with another listener.
fn serve_after(endpoint: &Endpoint, attack: impl Fn(&Listener) -> Option<Child>) {
    let is_served = || {
        let listener = endpoint.listen();
        let hostile = attack(&listener);
        let is_served = serve_well_behaved(endpoint, &listener);
        hostile.into_iter().for_each(kill);
        is_served
    };
    assert!(
        (0..LISTENERS).any(|_| is_served()),
        "the driver closed each listener"
    );
}

/// Serves a well-behaved client. The kernel may reject it while the backlog contains requests of
/// hostile peers; then it tries again. Returns `false` if Soft-iWARP has closed the listener.
fn serve_well_behaved(endpoint: &Endpoint, listener: &Listener) -> bool {
    let address = listener.local_addr();
    let deadline = Instant::now() + SERVICE_TIMEOUT;
    let is_closed = AtomicBool::new(false);
    let (served_tx, served_rx) = mpsc::channel();
    thread::scope(|scope| {
        let is_closed = &is_closed;
        scope.spawn(move || {
            loop {
                match connect_well_behaved(endpoint, address) {
                    Ok(()) => return,
                    Err(error) => {
                        println!("{}: {error}", endpoint.name());
                        if endpoint.is_iwarp() && error.contains("nothing listens") {
                            return is_closed.store(true, Ordering::Relaxed);
                        }
                        assert!(Instant::now() < deadline, "{error}");
                        thread::sleep(Duration::from_millis(100));
                    }
                }
            }
        });
        scope.spawn(move || {
            while Instant::now() < deadline {
                match serve(endpoint, listener) {
                    Ok(true) => return served_tx.send(true).expect("the test waits"),
                    Ok(false) if is_closed.load(Ordering::Relaxed) => {
                        return served_tx.send(false).expect("the test waits");
                    }
                    Ok(false) => {}
                    Err(error) => println!("{}: hostile peer: {error}", endpoint.name()),
                }
            }
        });
        served_rx
            .recv_timeout(SERVICE_TIMEOUT + TIMEOUT)
            .expect("the well-behaved client is served")
    })
}

/// Connects, sends and waits for the disconnect. Returns the error if the server gave up.
fn connect_well_behaved(endpoint: &Endpoint, address: SocketAddr) -> Result<(), String> {
    let resources = endpoint.resources();
    let route = Resolver::new(address)
        .timeout(TIMEOUT)
        .resolve()
        .expect("resolve");
    let mut ready = route.with_qp(resources.qp()).expect("INIT");
    resources.receive_on(ready.qp_mut());
    let connection = ready
        .connect(&ConnectParams::default(), TIMEOUT)
        .map_err(|error| error.to_string())?;
    let mut active = lab::Peer {
        connection,
        resources,
    };
    active.send(b"well behaved");
    active.retire().check().map_err(|error| error.to_string())?;
    active.expect_disconnected_after_first();
    Ok(())
}

/// Serves the next client. Returns `true` if it was well behaved.
fn serve(endpoint: &Endpoint, listener: &Listener) -> Result<bool, ConnectError> {
    let Some(request) = listener.next_request(Some(Duration::from_secs(1)))? else {
        return Ok(false);
    };
    let resources = endpoint.resources();
    let mut ready_request = request.with_qp(resources.qp())?;
    resources.receive_on(ready_request.qp_mut());
    let connection = ready_request.accept(&ConnectParams::default(), CLIENT_TIMEOUT)?;
    let mut passive = lab::Peer {
        connection,
        resources,
    };
    let Some(retired) = passive
        .retire_within(CLIENT_TIMEOUT)
        .filter(ibverbs::Retired::is_success)
    else {
        return Ok(false);
    };
    Ok(retired
        .into_buf()
        .is_some_and(|message| message.starts_with(b"well behaved")))
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_peer_that_vanishes_does_not_block_the_server() {
    for endpoint in leak_checked(one_endpoint_each()) {
        serve_after(&endpoint, |listener| {
            kill(peer("vanish", listener.local_addr()));
            None
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_peer_that_acknowledges_nothing_does_not_block_others() {
    for endpoint in leak_checked(one_endpoint_each()) {
        serve_after(&endpoint, |listener| {
            Some(peer("never acknowledge", listener.local_addr()))
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn too_much_private_data_is_rejected_by_the_kernel() {
    for endpoint in leak_checked(one_endpoint_each()) {
        serve_after(&endpoint, |listener| {
            Some(peer("too much private data", listener.local_addr()))
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn random_packets_do_not_disturb_the_listener() {
    let noise: Vec<u8> = (0..=255).cycle().take(1000).collect();
    for endpoint in leak_checked(one_endpoint_each()) {
        if endpoint.is_iwarp() {
            // Any TCP connection to a listener of Soft-iWARP can stop the kernel (docs/drivers.md),
            // so iWARP is not tested.
            println!("{}: skipped", endpoint.name());
            continue;
        }
        let any = if endpoint.ip.is_ipv4() {
            IpAddr::from([0; 4])
        } else {
            IpAddr::from([0_u8; 16])
        };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).expect("socket");
        serve_after(&endpoint, |_| {
            for len in [0, 1, 12, 19, 20, 40, 1000] {
                let to = SocketAddr::new(endpoint.ip, 4791);
                socket.send_to(&noise[..len], to).expect("send");
            }
            None
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn identifiers_can_be_dropped_in_every_state() {
    for endpoint in leak_checked(one_endpoint_each()) {
        let listener = endpoint.listen();
        let address = listener.local_addr();
        let (active_resources, passive_resources) = (endpoint.resources(), endpoint.resources());
        let resolver = || Resolver::new(address).timeout(TIMEOUT);
        let ready = || {
            resolver()
                .resolve()
                .expect("resolve")
                .with_qp(active_resources.qp())
                .expect("INIT")
        };
        let start = || ready().start(&ConnectParams::default()).expect("start");
        let request = || lab::request(&listener);
        // States of the active side.
        drop(resolver());
        drop(resolver().start().expect("start"));
        let mut resolving = resolver().start().expect("start");
        let _ = resolving.try_finish().expect("step");
        drop(resolving);
        drop(resolver().resolve().expect("resolve"));
        drop(ready());
        // States of both sides during the handshake, dropped in either order.
        for active_first in [true, false] {
            for depth in 0..3 {
                let connecting = start();
                let request = request();
                match (depth, active_first) {
                    (0, true) => drop((connecting, request)),
                    (0, false) => drop((request, connecting)),
                    (1, true) => drop((connecting, request.with_qp(passive_resources.qp()))),
                    (1, false) => drop((request.with_qp(passive_resources.qp()), connecting)),
                    (_, first) => {
                        let ready_request = request.with_qp(passive_resources.qp()).expect("INIT");
                        let accepting = ready_request.start(&ConnectParams::default());
                        if first {
                            drop((connecting, accepting));
                        } else {
                            drop((accepting, connecting));
                        }
                    }
                }
            }
        }
        // A connection that is disconnected first, or not.
        for disconnect in [true, false] {
            let (active, mut passive) = endpoint.pair();
            if disconnect {
                passive.connection.disconnect().expect("disconnect");
            }
            drop(passive);
            drop(active);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn forgotten_objects_only_leak() {
    // There is no leak check, because forgotten objects live until the process exits.
    for endpoint in one_endpoint_each() {
        let listener = endpoint.listen();
        let address = listener.local_addr();
        let connecting = thread::scope(|scope| {
            let passive = scope.spawn(|| accept(&listener, endpoint.resources(), b""));
            let mut active = connect(address, endpoint.resources(), b"");
            forget(passive.join().expect("passive side").connection);
            active.send(b"to a forgotten peer");
            active.retire().check().expect("the device acknowledges it");
            active
        });
        drop(connecting);
        forget(
            Resolver::new(address)
                .timeout(TIMEOUT)
                .start()
                .expect("start"),
        );
        serve_well_behaved(&endpoint, &listener);
    }
}
