//! A claimed request is accepted once.

use rdmacm::{ConnectParams, Pending};

fn accept(pending: Pending) {
    let _first = pending.start(&ConnectParams::default());
    let _second = pending.start(&ConnectParams::default());
}

fn main() {}
