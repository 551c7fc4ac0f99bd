//! Who asks for a service gets one answer.

use ibverbs::{QueuePair, Ud};
use rdmacm::datagram::ServiceRequest;

fn answer(request: ServiceRequest, qp: &QueuePair<Ud>) {
    let _yes = request.accept(qp, b"");
    let _no = request.reject(b"");
}

fn main() {}
