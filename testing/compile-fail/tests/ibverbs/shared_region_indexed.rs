//! A shared region cannot be indexed.
use ibverbs::SharedRegion;

fn rule(region: &SharedRegion) -> u8 {
    region[0]
}

fn main() {}
