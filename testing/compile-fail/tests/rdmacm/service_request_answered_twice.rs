//! A service request can be answered only once.

use ibverbs::{QueuePair, Ud};
use rdmacm::datagram::ServiceRequest;

fn answer(request: ServiceRequest, qp: &QueuePair<Ud>) {
    let _accepted = request.accept(qp, b"");
    let _rejected = request.reject(b"");
}

fn main() {}
