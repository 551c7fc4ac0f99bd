//! A connect request is claimed with a queue pair or by hand, not both.

use ibverbs::{QueuePair, Rc};
use rdmacm::{ConnectParams, ConnectRequest};

fn claim(request: ConnectRequest, a: QueuePair<Rc>, b: &QueuePair<Rc>) {
    let _first = request.with_qp(a);
    let _second = request.accept_external(b, &ConnectParams::default());
}

fn main() {}
