//! A response of the peer is either established or rejected.

use rdmacm::active::ConnectResponse;

fn establish(response: ConnectResponse) {
    let _id = response.establish();
    let _rejected = response.reject(b"");
}

fn main() {}
