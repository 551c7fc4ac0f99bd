//! A region that was converted into a buffer cannot be used any more.
use ibverbs::SharedRegion;

fn rule(region: SharedRegion) {
    let _buf = region.try_into_buf();
    let _ = region.write(0, b"after the conversion");
}

fn main() {}
