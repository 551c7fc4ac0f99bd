//! A route of a connection does not accept a UD queue pair.

use ibverbs::{QueuePair, Ud};
use rdmacm::Route;

fn start(route: Route, qp: QueuePair<Ud>) {
    let _ = route.with_qp(qp);
}

fn main() {}
