//! A region that was given for a buffer is gone, unless it comes back with the error.
use ibverbs::SharedRegion;

fn rule(region: SharedRegion) {
    let _buf = region.try_into_buf();
    let _ = region.write(0, b"behind the buffer's back");
}

fn main() {}
