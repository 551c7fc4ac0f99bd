//! A rejected connect request cannot be claimed.

use ibverbs::{QueuePair, Rc};
use rdmacm::ConnectRequest;

fn claim(request: ConnectRequest, qp: QueuePair<Rc>) {
    let _ = request.reject(b"no");
    let _ = request.with_qp(qp);
}

fn main() {}
