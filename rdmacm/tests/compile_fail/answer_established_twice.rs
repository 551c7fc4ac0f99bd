//! A peer's yes is answered once.

use rdmacm::active::ConnectResponse;

fn establish(answer: ConnectResponse) {
    let _link = answer.establish();
    let _no = answer.reject(b"");
}

fn main() {}
