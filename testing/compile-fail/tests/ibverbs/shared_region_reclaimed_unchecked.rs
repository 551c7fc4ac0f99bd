//! A shared region becomes a buffer only if no peer can reach it. The check cannot be skipped.
use ibverbs::{Buf, SharedRegion};

fn with_into(region: SharedRegion) -> Buf {
    region.into()
}

fn without_checking_the_result(region: SharedRegion) -> u8 {
    region.try_into_buf()[0]
}

fn main() {}
