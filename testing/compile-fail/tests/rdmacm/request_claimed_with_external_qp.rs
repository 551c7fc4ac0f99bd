//! A connect request is claimed either with a queue pair or with an external one.

use ibverbs::{QueuePair, Rc};
use rdmacm::{ConnectParams, ConnectRequest};

fn claim(request: ConnectRequest, a: QueuePair<Rc>, b: &QueuePair<Rc>) {
    let _first = request.with_qp(a);
    let _second = request.accept_external(b, &ConnectParams::default());
}

fn main() {}
