//! A route can be connected only once.

use std::time::Duration;

use rdmacm::{ConnectParams, ReadyRoute};

fn connect(ready: ReadyRoute) {
    let _first = ready.connect(&ConnectParams::default(), Duration::from_secs(1));
    let _second = ready.connect(&ConnectParams::default(), Duration::from_secs(1));
}

fn main() {}
