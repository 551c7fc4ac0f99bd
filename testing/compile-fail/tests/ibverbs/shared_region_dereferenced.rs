//! A shared region gives no references to its bytes: a peer may write at any time.
use ibverbs::SharedRegion;

fn rule(region: &SharedRegion) -> &[u8] {
    &**region
}

fn main() {}
