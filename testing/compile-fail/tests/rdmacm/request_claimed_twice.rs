//! A connect request can be claimed only once.

use ibverbs::{QueuePair, Rc};
use rdmacm::ConnectRequest;

fn claim(request: ConnectRequest, a: QueuePair<Rc>, b: QueuePair<Rc>) {
    let _first = request.with_qp(a);
    let _second = request.with_qp(b);
}

fn main() {}
