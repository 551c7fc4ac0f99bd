//! A connect request cannot be cloned.

use ibverbs::{QueuePair, Rc};
use rdmacm::ConnectRequest;

fn claim(request: ConnectRequest, a: QueuePair<Rc>, b: QueuePair<Rc>) {
    let copy = request.clone();
    let _first = request.with_qp(a);
    let _second = copy.with_qp(b);
}

fn main() {}
