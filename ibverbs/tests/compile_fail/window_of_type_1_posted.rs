//! A window of type 1 is bound by a verb of its own, not by a request.
use ibverbs::{AccessFlags, SharedRegion, mw::{Type1, Window}};

fn rule(window: Window<Type1>, region: &SharedRegion) {
    let _ = window.bind(region, AccessFlags::REMOTE_READ);
}

fn main() {}
