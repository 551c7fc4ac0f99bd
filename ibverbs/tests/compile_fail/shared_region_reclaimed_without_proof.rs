//! A shared region becomes a buffer only through the check that no peer can reach it: there is no conversion, and no way around the result.
use ibverbs::{Buf, SharedRegion};

fn by_conversion(region: SharedRegion) -> Buf {
    region.into()
}

fn by_ignoring_the_outcome(region: SharedRegion) -> u8 {
    region.try_into_buf()[0]
}

fn main() {}
