//! A route cannot connect without a queue pair.

use std::time::Duration;

use rdmacm::{ConnectParams, Route};

fn connect(route: Route) {
    let _ = route.connect(&ConnectParams::default(), Duration::from_secs(1));
}

fn main() {}
