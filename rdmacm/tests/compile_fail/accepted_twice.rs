//! A claimed request is accepted once.

use rdmacm::{ConnectParams, ReadyRequest};

fn accept(pending: ReadyRequest) {
    let _first = pending.start(&ConnectParams::default());
    let _second = pending.start(&ConnectParams::default());
}

fn main() {}
