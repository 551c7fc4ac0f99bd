//! Conclusions from a completion, on real drivers: which requests have completed, and that the
//! device has finished with their memory. Soft-iWARP completes sends out of order and lets TCP
//! transmit pages after their request has completed (docs/drivers.md).

use std::collections::HashMap;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{AccessFlags, ErrorKind, Frozen, MemoryOptions, Retired, SharedRegion, wr};
use rdmacm::{ConnectParams, Resolver};

use crate::lab::{Endpoint, Peer, TIMEOUT, leak_checked, one_endpoint_each};

/// Delay of each packet, much shorter than [`TIMEOUT`].
const DELAY: Duration = Duration::from_millis(300);

/// Size of a message that Soft-iWARP transmits from its pages.
const LEN: usize = 64 << 10;

const REMOTE: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_write_retires_no_earlier_read_that_is_in_flight() {
    for endpoint in leak_checked(one_endpoint_each()) {
        let (mut a, b) = connected(&endpoint);
        let source = b.resources.pd.shared(LEN, REMOTE).expect("source");
        let sink = a.resources.pd.shared(LEN, REMOTE).expect("sink");
        // The READ takes two delays, the WRITEs none.
        let _delay = NetworkDelay::start();
        let qp = a.connection.qp_mut();
        let sink = qp.hold(&sink).expect("hold");
        qp.post_send(wr::read(sink, source.remote()).tag(1))
            .expect("READ");
        let small = source.remote().slice(0..64).expect("64 bytes");
        let free = qp.send_slots_free();
        for tag in 2..=4 {
            let buf = a.resources.pd.buf(64).expect("buffer");
            let qp = a.connection.qp_mut();
            qp.post_send(wr::write(buf, small).tag(tag)).expect("WRITE");
        }
        let mut order = Vec::new();
        for _ in 0..4 {
            let retired = a.retire();
            retired.check().expect("success");
            order.push(retired.tag());
            assert_eq!(retired.into_buf().is_some(), order.last() != Some(&1));
        }
        if endpoint.is_iwarp() {
            assert_eq!(order, [2, 3, 4, 1], "Soft-iWARP completes the READ last");
        } else {
            assert_eq!(order, [1, 2, 3, 4], "RoCE completes in order");
        }
        assert_eq!(a.connection.qp().send_slots_free(), free + 1);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn many_writes_overtake_a_read_and_each_buffer_returns_once() {
    for endpoint in leak_checked(one_endpoint_each()) {
        let (mut a, b) = connected(&endpoint);
        let source = b.resources.pd.shared(LEN, REMOTE).expect("source");
        let sink = a.resources.pd.shared(LEN, REMOTE).expect("sink");
        let sink = a.connection.qp_mut().hold(&sink).expect("hold");
        let small = source.remote().slice(0..64).expect("64 bytes");
        let pool = a.resources.pd.pool(4, 64).expect("pool");
        let mut completed = HashMap::<u64, u32>::new();
        let _delay = NetworkDelay::start();
        let (reads, writes) = (4, 40);
        for round in 0..reads {
            let read = wr::read(sink, source.remote()).tag(1000 + round);
            a.connection.qp_mut().post_send(read).expect("READ");
            for write in 0..writes {
                let buf = loop {
                    match pool.take() {
                        Some(buf) if a.connection.qp().send_slots_free() > 0 => break buf,
                        _ => count(&a.retire(), &mut completed),
                    }
                };
                let write = wr::write(buf, small).tag(round * writes + write);
                a.connection.qp_mut().post_send(write).expect("WRITE");
            }
        }
        while (completed.len() as u64) < reads + reads * writes {
            count(&a.retire(), &mut completed);
        }
        assert!(completed.values().all(|&times| times == 1), "{completed:?}");
        assert_eq!(pool.available(), 4);
    }
}

fn count(retired: &Retired, completed: &mut HashMap<u64, u32>) {
    retired.check().expect("success");
    *completed.entry(retired.tag()).or_default() += 1;
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_returned_buffer_is_no_longer_transmitted() {
    for endpoint in iwarp() {
        let (mut a, b) = connected(&endpoint);
        let pool = a.resources.pd.pool(1, LEN).expect("pool");
        let sink = b.resources.pd.shared(LEN, REMOTE).expect("sink");
        let _delay = NetworkDelay::start();
        for signaled in [true, false] {
            sink.write(0, &vec![0; LEN]).expect("within");
            let mut buf = pool.take().expect("free");
            buf.fill(b'A');
            let write = wr::write(buf, sink.remote()).signaled(signaled);
            a.connection.qp_mut().post_send(write).expect("WRITE");
            let empty = wr::write(wr::Empty, sink.remote());
            a.connection.qp_mut().post_send(empty).expect("WRITE");
            let mut buf = loop {
                let buf = a.retire().into_buf().or_else(|| pool.take());
                if let Some(buf) = buf {
                    break buf;
                }
            };
            buf.fill(b'B');
            let received = wait_for_data(&sink);
            assert!(received.iter().all(|&byte| byte == b'A'), "{signaled}");
            while let Some(retired) = a.retire_within(DELAY) {
                retired.check().expect("success");
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn lent_memory_is_not_transmitted_after_its_scope() {
    for endpoint in iwarp() {
        let (mut a, b) = connected(&endpoint);
        let sink = b.resources.pd.shared(LEN, REMOTE).expect("sink");
        let mut message = vec![b'A'; LEN];
        let _delay = NetworkDelay::start();
        let (qp, cq) = (a.connection.qp_mut(), &mut a.resources.cq);
        let waited = qp.scope(|scope| {
            let lent = scope.lend(&message)?;
            let write = wr::write(lent, sink.remote()).signaled(false);
            scope.post_send(write)?;
            scope.wait(cq, TIMEOUT, |_| ())
        });
        waited.expect("the WRITE completed");
        drop(a.connection);
        message.fill(b'S');
        // The bytes that arrive together with the end of the connection can be lost (fault 56 in
        // docs/drivers.md).
        let received = data_within(&sink, DELAY * 10);
        assert!(
            received.iter().all(|&byte| byte == b'A' || byte == 0),
            "bytes written after the scope were sent"
        );
        assert_eq!(received[0], b'A', "nothing arrived");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn memory_that_a_peer_was_reading_is_not_used_again() {
    for endpoint in iwarp() {
        // On a busy machine the request may arrive too late, so that nothing is transmitted.
        let was_transmitting = (0..5).any(|_| destroy_while_a_peer_reads(&endpoint));
        assert!(was_transmitting, "no response was on its way");
    }
}

/// Destroys a queue pair whose memory the peer is reading. Returns `false` if the peer received
/// nothing.
fn destroy_while_a_peer_reads(endpoint: &Endpoint) -> bool {
    let (mut a, b) = connected(endpoint);
    let sink = a.resources.pd.shared(LEN, REMOTE).expect("sink");
    let held = a.connection.qp_mut().hold(&sink).expect("hold");
    // The source has a protection domain without other queue pairs.
    let source = b
        .resources
        .pd
        .shared(LEN, AccessFlags::REMOTE_READ)
        .expect("source");
    source.write(0, &vec![b'A'; LEN]).expect("within");
    let _delay = NetworkDelay::start();
    let read = wr::read(held, source.remote());
    a.connection.qp_mut().post_send(read).expect("READ");
    // The request has arrived, and the response is on its way.
    thread::sleep(DELAY * 3 / 2);
    drop(b.connection);
    let failed = source.try_into_buf().expect_err("may be transmitted");
    assert_eq!(failed.error().kind(), ErrorKind::Unsupported, "{failed}");
    assert!(failed.error().help().is_some());
    drop(failed.into_region());
    let secrets: Vec<Vec<u8>> = (0..16).map(|_| vec![b'S'; LEN]).collect();
    let received = data_within(&sink, DELAY * 10);
    assert!(
        received.iter().all(|&byte| byte == b'A' || byte == 0),
        "bytes of another buffer were sent"
    );
    drop(secrets);
    !received.contains(&0)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_completion_frees_the_slots_of_earlier_unsignaled_sends() {
    for endpoint in leak_checked(one_endpoint_each()) {
        let (mut a, b) = connected(&endpoint);
        let sink = b.resources.pd.shared(LEN, REMOTE).expect("sink");
        let fetched = a.resources.pd.shared(LEN, REMOTE).expect("memory");
        let source = frozen(&a);
        let qp = a.connection.qp_mut();
        let (fetched, source) = (qp.hold(&fetched), qp.hold(&source));
        let (fetched, source) = (fetched.expect("hold"), source.expect("hold"));
        let write = wr::write(source, sink.remote()).signaled(false);
        let free = qp.send_slots_free();
        {
            let _delay = NetworkDelay::start();
            qp.post_send(write).expect("WRITE");
            let read = wr::read(fetched, sink.remote());
            qp.post_send(read.tag(1)).expect("READ");
            qp.post_send(write).expect("WRITE");
            qp.post_send(write).expect("WRITE");
            let empty = wr::write(wr::Empty, sink.remote());
            qp.post_send(empty.signaled(false)).expect("WRITE");
            qp.post_send(empty.tag(2)).expect("WRITE");
            let mut order = Vec::new();
            let mut slots = Vec::new();
            for _ in 0..2 {
                let retired = a.retire();
                retired.check().expect("success");
                order.push(retired.tag());
                slots.push(free - a.connection.qp().send_slots_free());
            }
            let is_iwarp = endpoint.is_iwarp();
            // A slot behind the READ is not free before the READ has completed.
            let expected = if is_iwarp {
                ([2, 1], [5, 0])
            } else {
                ([1, 2], [4, 0])
            };
            assert_eq!((&order[..], &slots[..]), (&expected.0[..], &expected.1[..]));
        }
        assert!(
            a.retire_within(DELAY).is_none(),
            "two requests are signaled"
        );
        assert!(wait_for_data(&sink).iter().all(|&byte| byte == b'A'));
        // Many times the length of the queue, with few completions.
        let half = free / 2;
        for _ in 0..20 {
            let qp = a.connection.qp_mut();
            for _ in 1..half {
                qp.post_send(write).expect("a free slot");
            }
            qp.post_send(wr::write(source, sink.remote()))
                .expect("a free slot");
            a.retire().check().expect("success");
            assert_eq!(a.connection.qp().send_slots_free(), free);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn unsignaled_frozen_memory_is_not_used_again() {
    for endpoint in iwarp() {
        let (mut a, b) = connected(&endpoint);
        let sink = b.resources.pd.shared(LEN, REMOTE).expect("sink");
        let frozen = frozen(&a);
        let held = a.connection.qp_mut().hold(&frozen).expect("hold");
        let delay = NetworkDelay::start();
        let qp = a.connection.qp_mut();
        let write = wr::write(held, sink.remote()).signaled(false);
        qp.post_send(write).expect("WRITE");
        let last = wr::write(wr::Empty, sink.remote());
        qp.post_send(last).expect("WRITE");
        a.retire().check().expect("success");
        // The data is in the queue of TCP.
        drop((frozen, a));
        let secrets: Vec<Vec<u8>> = (0..16).map(|_| vec![b'S'; LEN]).collect();
        // The bytes that arrive together with the end of the connection can be lost (fault 56 in
        // docs/drivers.md).
        let received = data_within(&sink, DELAY * 10);
        assert!(
            received.iter().all(|&byte| byte == b'A' || byte == 0),
            "bytes of another buffer were sent"
        );
        assert_eq!(received[0], b'A', "nothing arrived");
        drop((secrets, delay));
    }
}

/// Returns read-only memory of [`LEN`] bytes that peers can read.
fn frozen(peer: &Peer) -> Frozen {
    let fill = |bytes: &mut [u8]| bytes.fill(b'A');
    let pd = &peer.resources.pd;
    pd.frozen_shared(LEN, MemoryOptions::new(), fill)
        .expect("frozen memory")
}

fn iwarp() -> Vec<Endpoint> {
    let mut endpoints = one_endpoint_each();
    endpoints.retain(Endpoint::is_iwarp);
    assert!(!endpoints.is_empty(), "no iWARP device");
    endpoints
}

/// Connects two queue pairs with remote access and different protection domains.
fn connected(endpoint: &Endpoint) -> (Peer, Peer) {
    let listener = endpoint.listen();
    let address = listener.local_addr();
    let params = ConnectParams::default();
    thread::scope(|scope| {
        let passive = scope.spawn(|| {
            let resources = endpoint.resources();
            let request = listener.next_request(Some(TIMEOUT)).expect("accept");
            let request = request.expect("a request in time").access(REMOTE);
            let ready = request.with_qp(resources.qp()).expect("INIT");
            Peer {
                connection: ready.accept(&params, TIMEOUT).expect("accept"),
                resources,
            }
        });
        let resources = endpoint.resources();
        let resolver = Resolver::new(address).timeout(TIMEOUT);
        let route = resolver.resolve().expect("resolve").access(REMOTE);
        let ready = route.with_qp(resources.qp()).expect("INIT");
        let active = Peer {
            connection: ready.connect(&params, TIMEOUT).expect("connect"),
            resources,
        };
        (active, passive.join().expect("passive side"))
    })
}

/// Delays all local packets while it exists.
struct NetworkDelay;

impl NetworkDelay {
    fn start() -> Self {
        let delay = format!("{}ms", DELAY.as_millis());
        tc(&[
            "qdisc", "add", "dev", "lo", "root", "netem", "delay", &delay,
        ]);
        Self
    }
}

impl Drop for NetworkDelay {
    fn drop(&mut self) {
        tc(&["qdisc", "del", "dev", "lo", "root"]);
    }
}

fn tc(arguments: &[&str]) {
    let output = Command::new("tc").args(arguments).output().expect("run tc");
    assert!(output.status.success(), "tc {arguments:?}: {output:?}");
}

/// Returns the memory after a peer has written to it, and after what was in transit has arrived.
fn wait_for_data(region: &SharedRegion) -> Vec<u8> {
    let bytes = data_within(region, TIMEOUT);
    assert!(!bytes.contains(&0), "no data in time");
    bytes
}

/// Like [`wait_for_data`], but returns the memory if the time runs out.
fn data_within(region: &SharedRegion, time: Duration) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    let deadline = Instant::now() + time;
    while bytes.contains(&0) && Instant::now() < deadline {
        thread::sleep(DELAY);
        region.read(0, &mut bytes).expect("within");
    }
    bytes
}
