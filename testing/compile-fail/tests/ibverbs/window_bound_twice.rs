//! A bound window cannot be bound again before it is invalidated.
use ibverbs::{AccessFlags, SharedRegion, mw::{Type2, Window}};

fn rule(window: Window<Type2>, region: &SharedRegion) {
    let _first = window.bind(region, AccessFlags::REMOTE_READ);
    let _second = window.bind(region, AccessFlags::REMOTE_READ);
}

fn main() {}
