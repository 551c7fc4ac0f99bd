//! Memory of values that transfers write, on the fake provider.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use fake_provider::{Fake, Profile};
use ibverbs::{MemoryOptions, mr::Backing};
use rdma_transfer::{Engine, EngineOptions, ErrorKind, Peer, Region, Span, TransferOptions};

use crate::common::{SOON, bytes, connect, filled, imm, pattern, wait_ready, wait_until};

fn engine(fakes: &[Fake]) -> Engine {
    let names: Vec<&str> = fakes.iter().map(Fake::name).collect();
    Engine::open(&names, EngineOptions::new()).expect("engine")
}

#[test]
fn a_vector_is_a_target_and_returns() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    let options = EngineOptions::new().stripe(512);
    let names = fakes.each_ref().map(Fake::name);
    let [a, b] = [(); 2].map(|()| Engine::open(&names, options).expect("engine"));
    let (peer, a_of_b) = connect(&a, &b);
    let source = filled(&a, 4096, 1);
    wait_ready(&peer);
    wait_ready(&a_of_b);
    let regions = fakes[0].live().mrs;
    let written = b.register_mut(vec![0; 4096]).expect("registered");
    let read = b
        .register_mut(vec![0; 4096].into_boxed_slice())
        .expect("registered");
    assert!(written.is_writable());
    let all = [Span::new(0, 0, 4096)];
    peer.write(&source, &written.remote(), &all, imm(1))
        .expect("write")
        .wait(SOON)
        .expect("written");
    b.imm_counter(1).wait(1, SOON).expect("arrived");
    a_of_b
        .read(&read, &source.remote(), &all, TransferOptions::new())
        .expect("read")
        .wait(SOON)
        .expect("read");
    let release = read.release();
    release.wait(SOON).expect("released");
    let release = release.into_owner::<Vec<u8>>().expect_err("another type");
    let bytes: Box<[u8]> = release.into_owner().expect("the value");
    assert_eq!(bytes[..], pattern(4096, 1));

    let clone = written.clone();
    let release = written.release();
    let release = release.into_owner::<Vec<u8>>().expect_err("in use");
    drop(clone);
    release.wait(SOON).expect("released");
    let bytes: Vec<u8> = release.into_owner().expect("the value");
    assert_eq!(bytes, pattern(4096, 1));
    assert_eq!(fakes[0].live().mrs, regions);

    let value = a.register(pattern(64, 2)).expect("registered");
    let release = value.release();
    release.wait(SOON).expect("released");
    assert_eq!(release.into_owner::<Vec<u8>>().ok(), Some(pattern(64, 2)));
    let error = b.register_mut(vec![0; 100]).expect_err("no whole words");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    drop((peer, a_of_b, source, a, b));
    fakes.iter().for_each(Fake::assert_clean);
}

/// A queue pair does not know which requests use a region.
#[test]
fn a_region_is_released_after_the_requests_in_flight() {
    let fake = Fake::new(Profile::RXE);
    let options = EngineOptions::new().manual(true);
    let [a, b] = [(); 2].map(|()| Engine::open(&[fake.name()], options).expect("engine"));
    let (peer, _a_of_b) = connect(&a, &b);
    let now = Instant::now();
    let poll = || {
        a.poll(now);
        b.poll(now);
    };
    while peer.paths().first().is_none_or(|path| !path.is_ready) {
        poll();
    }
    let [first, second] = [1, 2].map(|seed| filled(&a, 64, seed));
    let target = b.alloc(64).expect("region");
    let write = |source: &Region| {
        let all = [Span::new(0, 0, 64)];
        let write = peer.write(source, &target.remote(), &all, TransferOptions::new());
        write.expect("write")
    };
    let write_of_first = write(&first);
    poll();
    assert!(write_of_first.has_ended());
    let regions = fake.live().mrs;
    fake.stall();
    let write_of_second = write(&second);
    let release = first.release();
    poll();
    assert!(!release.is_done() && fake.live().mrs == regions);
    fake.resume();
    poll();
    assert!(write_of_second.has_ended() && release.is_done());
    assert_eq!(fake.live().mrs, regions - 1);
}

/// One scatter entry names at most 4 GiB, so a queue pair holds such a region in parts.
#[test]
fn every_part_of_a_region_of_9_gib_is_released() {
    const GIB: usize = 1 << 30;
    let fakes = [Fake::new(Profile::RXE)];
    let [a, b] = [(); 2].map(|()| engine(&fakes));
    let (peer, _a_of_b) = connect(&a, &b);
    wait_ready(&peer);
    let target = b.alloc(4096).expect("region");
    let regions = fakes[0].live().mrs;
    let pages = MemoryOptions::new().backing(Backing::Pages); // few are touched
    let source = a.alloc_with(9 * GIB, pages).expect("region");
    // Also across the ends of parts, and the last bytes.
    let starts = [0, 2 * GIB - 10, 4 * GIB - 10, 4 * GIB + 5, 9 * GIB - 100];
    for (start, seed) in starts.into_iter().zip(1..) {
        source.write(start, &pattern(100, seed)).expect("in range");
        let span = [Span::new(start, 0, 100)];
        peer.write(&source, &target.remote(), &span, TransferOptions::new())
            .expect("write")
            .wait(SOON)
            .expect("written");
        assert_eq!(bytes(&target)[..100], pattern(100, seed), "{start}");
    }
    let release = source.release();
    release.wait(SOON).expect("released");
    assert_eq!(fakes[0].live().mrs, regions, "deregistered");
}

/// Bytes that own a handle of their peer, like a session with its buffers.
struct Session {
    bytes: Vec<u8>,
    peer: Peer,
    engine: Engine,
    dropped: Sender<usize>,
}

impl AsRef<[u8]> for Session {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let region = self.engine.alloc(64).expect("the engine works");
        self.peer.offer("last", &region).expect("a short name");
        let _ = self.dropped.send(self.peer.paths().len());
    }
}

/// A thread of the engine drops the value, with the last handles of the peer and of the engine.
#[test]
fn a_value_that_owns_its_peer_is_dropped_without_a_lock() {
    let fakes = [Fake::new(Profile::RXE)];
    for in_flight in [false, true] {
        let [a, b] = [(); 2].map(|()| engine(&fakes));
        let (peer, a_of_b) = connect(&a, &b);
        wait_ready(&peer);
        let target = b.alloc(64).expect("region");
        let (dropped, is_dropped) = channel();
        let session = Session {
            bytes: pattern(64, 1),
            peer: peer.clone(),
            engine: a.clone(),
            dropped,
        };
        let source = a.register(session).expect("registered");
        if in_flight {
            fakes[0].stall();
        }
        let all = [Span::new(0, 0, 64)];
        let transfer = peer
            .write(&source, &target.remote(), &all, TransferOptions::new())
            .expect("write");
        if !in_flight {
            transfer.wait(SOON).expect("written");
        }
        drop((source, peer, a));
        fakes[0].resume();
        let paths = is_dropped.recv_timeout(SOON).expect("dropped");
        assert_eq!(paths, 1);
        transfer.wait(SOON).expect("written");
        wait_until("its peer is dropped", || !a_of_b.is_connected());
    }
    wait_until("all objects are destroyed", || fakes[0].live().qps == 0);
}

/// Bytes that are others each time.
struct Changing(Vec<u8>, AtomicUsize);

impl AsRef<[u8]> for Changing {
    fn as_ref(&self) -> &[u8] {
        &self.0[self.1.fetch_add(8, Ordering::Relaxed)..][..8]
    }
}

#[test]
fn a_value_must_always_return_the_same_bytes() {
    let fakes = [Profile::RXE, Profile::RXE].map(Fake::new);
    let engine = engine(&fakes);
    let value = Changing(pattern(64, 1), AtomicUsize::new(0));
    let error = engine.register(value).expect_err("other bytes");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(fakes[0].live().mrs, 0);
}

/// Bytes whose destructor panics.
struct Panics(Vec<u8>);

impl AsRef<[u8]> for Panics {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("a panic of the program");
    }
}

#[test]
fn a_destructor_that_panics_does_not_end_the_engine() {
    let fakes = [Fake::new(Profile::RXE)];
    let [a, b] = [(); 2].map(|()| engine(&fakes));
    let (peer, _a_of_b) = connect(&a, &b);
    let target = b.alloc(64).expect("region");
    wait_ready(&peer);
    let regions = fakes[0].live().mrs;
    for _ in 0..3 {
        let source = a.register(Panics(pattern(64, 1))).expect("registered");
        let all = [Span::new(0, 0, 64)];
        let transfer = peer.write(&source, &target.remote(), &all, TransferOptions::new());
        // A thread of the engine drops it.
        drop(source);
        transfer.expect("write").wait(SOON).expect("written");
    }
    wait_until("the memory is deregistered", || {
        fakes[0].live().mrs == regions
    });
}
