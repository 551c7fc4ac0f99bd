//! A shared region gives out no references: a peer may write at any time.
use ibverbs::SharedRegion;

fn rule(region: &SharedRegion) -> &[u8] {
    &**region
}

fn main() {}
