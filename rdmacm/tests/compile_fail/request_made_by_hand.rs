//! A new identifier comes from a connect request of a listener, from nothing else.

use rdmacm::ConnectRequest;

fn make() -> ConnectRequest {
    ConnectRequest { private_data: Vec::new() }
}

fn main() {}
