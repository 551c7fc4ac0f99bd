//! Hostile peers on real drivers: whatever they do, this side has no hang, nothing left, and serves
//! the next one.

#![allow(
    unsafe_code,
    reason = "the peers use the C library as the safe API cannot be used"
)]

mod lab;

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{ptr, thread};

use lab::{
    PATIENCE, Place, accept, connect, forget, leaves_nothing_within, one_place_each, places,
};
use nix::sys::socket::SockaddrStorage;
use rdma_sys::{
    RDMA_PS_TCP, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_connect,
    rdma_create_event_channel, rdma_create_id, rdma_get_cm_event, rdma_resolve_addr,
    rdma_resolve_route,
};
use rdmacm::{ConnectError, ConnectParams, InProgress, Listener, Resolver};

const PEER: &str = "RDMACM_TEST_HOSTILE";
/// What a client is given to finish connecting, and then to send.
const GIVEN: Duration = Duration::from_secs(5);
/// How long it may come again and again until it is served.
const SERVED: Duration = Duration::from_secs(60);

/// Starts this program again as such a peer of a listener, and waits until it has done its worst.
fn peer(what: &str, address: SocketAddr) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([
            "--ignored",
            "--exact",
            "hostile_peer",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(PEER, format!("{what} {address}"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    assert!(
        output
            .lines()
            .any(|line| line.expect("text").ends_with("done its worst")),
        "{what}"
    );
    child
}

fn end(mut peer: Child) {
    peer.kill().expect("kill");
    peer.wait().expect("wait");
}

/// Not a test by itself: the process of a hostile peer.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn hostile_peer() {
    let Ok(task) = std::env::var(PEER) else {
        return println!("device: none (a process of other tests)");
    };
    let (what, address) = task.rsplit_once(' ').expect("what and where");
    let address: SocketAddr = address.parse().expect("an address");
    let place = places()
        .into_iter()
        .find(|place| place.ip == address.ip())
        .expect("the address");
    let end = place.end();
    match what {
        "vanishes" => {
            let ready = Resolver::new(address)
                .timeout(PATIENCE)
                .resolve()
                .expect("resolve")
                .with_qp(end.qp());
            let _connecting = ready
                .expect("INIT")
                .start(&ConnectParams::default())
                .expect("start");
            println!("done its worst");
            thread::sleep(PATIENCE);
        }
        "never acknowledges" => {
            let _kept = never_acknowledges(address, &[]);
            println!("done its worst");
            thread::sleep(PATIENCE);
        }
        "says too much" => {
            let returned = never_acknowledges(address, &[7; 255]);
            println!("rdma_connect returned {returned}: done its worst");
            thread::sleep(PATIENCE);
        }
        other => panic!("{other}"),
    }
}

/// Connects without a queue pair and acknowledges nothing; gives what `rdma_connect` returned.
fn never_acknowledges(address: SocketAddr, private_data: &[u8]) -> i32 {
    let to = SockaddrStorage::from(address);
    let mut id: *mut rdma_cm_id = ptr::null_mut();
    let mut event: *mut rdma_cm_event = ptr::null_mut();
    // SAFETY: calls of the C library as its manual pages have them, on objects that live as long as
    // the process.
    unsafe {
        let channel = rdma_create_event_channel();
        assert!(!channel.is_null());
        assert_eq!(
            rdma_create_id(channel, &raw mut id, ptr::null_mut(), RDMA_PS_TCP),
            0
        );
        assert_eq!(
            rdma_resolve_addr(id, ptr::null_mut(), (&raw const to).cast_mut().cast(), 5000),
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

/// A client that behaves. The kernel may turn it away while it still holds what the hostile ones
/// left in its queue: then it comes again.
fn is_served(place: &Place, listener: &Listener) {
    let address = listener.local_addr();
    let deadline = Instant::now() + SERVED;
    let (served, is_served) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            loop {
                match behaves(place, address) {
                    Ok(()) => return,
                    Err(why) => {
                        println!("{}: {why}", place.name());
                        assert!(Instant::now() < deadline, "{why}");
                        thread::sleep(Duration::from_millis(100));
                    }
                }
            }
        });
        scope.spawn(move || {
            while Instant::now() < deadline {
                match serve(place, listener) {
                    Ok(true) => return served.send(()).expect("awaited"),
                    Ok(false) => {}
                    Err(error) => println!("{}: a hostile one: {error}", place.name()),
                }
            }
        });
        is_served
            .recv_timeout(SERVED + PATIENCE)
            .expect("the client that behaves is served");
    });
}

/// Connects, sends, and waits for the end; why the server had lost patience, if it had.
fn behaves(place: &Place, address: SocketAddr) -> Result<(), String> {
    let end = place.end();
    let route = Resolver::new(address)
        .timeout(PATIENCE)
        .resolve()
        .expect("resolve");
    let mut ready = route.with_qp(end.qp()).expect("INIT");
    end.receive_on(ready.qp_mut());
    let connection = ready
        .connect(&ConnectParams::default(), PATIENCE)
        .map_err(|error| error.to_string())?;
    let mut active = lab::Wired { connection, end };
    active.send(b"well behaved");
    active.retire().ok().map_err(|error| error.to_string())?;
    active.expect_disconnected();
    Ok(())
}

/// Serves whoever comes next; whether it behaved.
fn serve(place: &Place, listener: &Listener) -> Result<bool, ConnectError> {
    let Some(request) = listener.accept(Some(Duration::from_secs(1)))? else {
        return Ok(false);
    };
    let end = place.end();
    let mut pending = request.with_qp(end.qp())?;
    end.receive_on(pending.qp_mut());
    let connection = pending.accept(&ConnectParams::default(), GIVEN)?;
    let mut passive = lab::Wired { connection, end };
    let Some(got) = passive
        .retire_within(GIVEN)
        .filter(ibverbs::Retired::is_success)
    else {
        return Ok(false);
    };
    Ok(got
        .into_buf()
        .is_some_and(|message| message.starts_with(b"well behaved")))
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_peer_that_asked_and_vanished_is_no_hang() {
    for place in one_place_each() {
        leaves_nothing_within(&place, Duration::from_secs(30), || {
            let listener = place.listen();
            end(peer("vanishes", listener.local_addr()));
            is_served(&place, &listener);
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_peer_that_never_acknowledges_an_event_holds_up_nobody() {
    for place in one_place_each() {
        leaves_nothing_within(&place, Duration::from_secs(30), || {
            let listener = place.listen();
            let hostile = peer("never acknowledges", listener.local_addr());
            is_served(&place, &listener);
            end(hostile);
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_peer_with_more_private_data_than_fits_is_turned_away_by_the_kernel() {
    for place in one_place_each() {
        leaves_nothing_within(&place, Duration::from_secs(30), || {
            let listener = place.listen();
            let hostile = peer("says too much", listener.local_addr());
            is_served(&place, &listener);
            end(hostile);
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn noise_at_the_port_is_survived() {
    let noise: Vec<u8> = (0..=255).cycle().take(1000).collect();
    for place in one_place_each() {
        if place.is_iwarp() {
            // Whoever can open a TCP connection to a listener of Soft-iWARP stops the kernel
            // (ci/DRIVERS.md): nothing to be had here.
            println!("{}: left alone", place.name());
            continue;
        }
        leaves_nothing_within(&place, Duration::from_secs(30), || {
            let listener = place.listen();
            let any = if place.ip.is_ipv4() {
                IpAddr::from([0; 4])
            } else {
                IpAddr::from([0_u8; 16])
            };
            let socket = UdpSocket::bind(SocketAddr::new(any, 0)).expect("socket");
            for len in [0, 1, 12, 19, 20, 40, 1000] {
                socket
                    .send_to(&noise[..len], SocketAddr::new(place.ip, 4791))
                    .expect("send");
            }
            is_served(&place, &listener);
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_identifier_goes_at_every_state_of_its_life() {
    for place in one_place_each() {
        leaves_nothing_within(&place, Duration::from_secs(30), || {
            let listener = place.listen();
            let address = listener.local_addr();
            let (active_end, passive_end) = (place.end(), place.end());
            let resolver = || Resolver::new(address).timeout(PATIENCE);
            let ready = || {
                resolver()
                    .resolve()
                    .expect("resolve")
                    .with_qp(active_end.qp())
                    .expect("INIT")
            };
            let start = || ready().start(&ConnectParams::default()).expect("start");
            let request = || {
                listener
                    .accept(Some(PATIENCE))
                    .expect("accept")
                    .expect("in time")
            };
            // Of the active side.
            drop(resolver());
            drop(resolver().start().expect("start"));
            let mut resolving = resolver().start().expect("start");
            let _ = resolving.try_finish().expect("step");
            drop(resolving);
            drop(resolver().resolve().expect("resolve"));
            drop(ready());
            // Of both, while they wait for each other: either may go first.
            for active_first in [true, false] {
                for depth in 0..3 {
                    let connecting = start();
                    let request = request();
                    match (depth, active_first) {
                        (0, true) => drop((connecting, request)),
                        (0, false) => drop((request, connecting)),
                        (1, true) => drop((connecting, request.with_qp(passive_end.qp()))),
                        (1, false) => drop((request.with_qp(passive_end.qp()), connecting)),
                        (_, first) => {
                            let pending = request.with_qp(passive_end.qp()).expect("INIT");
                            let accepting = pending.start(&ConnectParams::default());
                            if first {
                                drop((connecting, accepting));
                            } else {
                                drop((accepting, connecting));
                            }
                        }
                    }
                }
            }
            // Of a connection, disconnected and not.
            for disconnect in [true, false] {
                let (active, mut passive) = place.pair();
                if disconnect {
                    passive.connection.disconnect().expect("disconnect");
                }
                drop(passive);
                drop(active);
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn what_is_forgotten_is_leaked_and_nothing_worse() {
    // No census here: what is forgotten stays until the process ends.
    for place in one_place_each() {
        let listener = place.listen();
        let address = listener.local_addr();
        let connecting = thread::scope(|scope| {
            let passive = scope.spawn(|| accept(&listener, place.end(), b""));
            let mut active = connect(address, place.end(), b"");
            forget(passive.join().expect("passive side").connection);
            active.send(b"to nobody");
            active.retire().ok().expect("the hardware answers");
            active
        });
        drop(connecting);
        forget(
            Resolver::new(address)
                .timeout(PATIENCE)
                .start()
                .expect("start"),
        );
        is_served(&place, &listener);
    }
}
