//! A shared region is local memory of requests only once a queue pair holds it.
use ibverbs::{SharedRegion, wr};

fn rule(region: SharedRegion) {
    let _ = wr::recv(region);
}

fn main() {}
