//! Applications cannot construct a connect request.

use rdmacm::ConnectRequest;

fn make() -> ConnectRequest {
    ConnectRequest { private_data: Vec::new() }
}

fn main() {}
