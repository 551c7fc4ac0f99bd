//! A type 1 window is bound by `bind_mw`, not by a posted request.
use ibverbs::{AccessFlags, SharedRegion, mw::{Type1, Window}};

fn rule(window: Window<Type1>, region: &SharedRegion) {
    let _ = window.bind(region, AccessFlags::REMOTE_READ);
}

fn main() {}
