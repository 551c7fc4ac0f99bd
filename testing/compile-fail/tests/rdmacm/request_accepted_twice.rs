//! A connect request can be accepted only once.

use rdmacm::{ConnectParams, ReadyRequest};

fn accept(ready: ReadyRequest) {
    let _first = ready.start(&ConnectParams::default());
    let _second = ready.start(&ConnectParams::default());
}

fn main() {}
