//! Engines of one process that are connected to each other.

#![allow(dead_code, reason = "each test program uses its part")]

use std::time::Duration;

use rdma_transfer::{Engine, Peer, PeerAddress, Region};

/// Time limit for what must happen.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Connects two engines, and returns each as the other sees it: the peer `b` of `a`, and the peer
/// `a` of `b`.
pub(crate) fn connect(a: &Engine, b: &Engine) -> (Peer, Peer) {
    let (of_a, of_b) = (a.new_peer().expect("a"), b.new_peer().expect("b"));
    let (to_b, to_a) = (exchange(of_a.address()), exchange(of_b.address()));
    let b_of_a = of_a.connect(&to_a).expect("a connects");
    let a_of_b = of_b.connect(&to_b).expect("b connects");
    (b_of_a, a_of_b)
}

/// Sends an address as text, as programs do.
fn exchange(address: &PeerAddress) -> PeerAddress {
    let text = serde_json::to_string(address).expect("serializable");
    serde_json::from_str(&text).expect("the same address")
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
