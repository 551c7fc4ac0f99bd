//! Engines of one process that are connected to each other.

#![allow(dead_code, reason = "each test program uses its part")]

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rdma_transfer::{Engine, Peer, Region, StreamControl, TransferOptions};

/// Time limit for what must happen.
pub(crate) const SOON: Duration = Duration::from_secs(120);

/// Connects two engines, and returns each as the other sees it: the peer `b` of `a`, and the peer
/// `a` of `b`.
pub(crate) fn connect(a: &Engine, b: &Engine) -> (Peer, Peer) {
    let (of_a, of_b) = UnixStream::pair().expect("sockets");
    let peer = |engine: &Engine, stream| {
        let control = StreamControl::new(stream).expect("non-blocking");
        engine.connect(control).expect("connects")
    };
    (peer(a, of_a), peer(b, of_b))
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until all paths to a peer are ready.
pub(crate) fn wait_ready(peer: &Peer) {
    wait_until("the paths are ready", || {
        let paths = peer.paths();
        !paths.is_empty() && paths.iter().all(|path| path.is_ready)
    });
}

/// Returns options with an immediate.
pub(crate) fn imm(value: u32) -> TransferOptions {
    TransferOptions::new().imm(value)
}

/// Returns a region of this length with bytes that depend on their offset and on `seed`.
pub(crate) fn filled(engine: &Engine, len: usize, seed: usize) -> Region {
    let region = engine.alloc(len).expect("region");
    region.write(0, &pattern(len, seed)).expect("in range");
    region
}

/// Returns the bytes of [`filled`].
pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at * 7 + at / 251 + seed) % 251).expect("less than 251");
    (0..len).map(byte).collect()
}

/// Returns all bytes of a region.
pub(crate) fn bytes(region: &Region) -> Vec<u8> {
    let mut all = vec![0; region.len()];
    region.read(0, &mut all).expect("in range");
    all
}
