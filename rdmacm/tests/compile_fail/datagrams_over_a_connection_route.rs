//! A route of connections takes no queue pair of datagrams.

use ibverbs::{QueuePair, Ud};
use rdmacm::Route;

fn start(route: Route, qp: QueuePair<Ud>) {
    let _ = route.with_qp(qp);
}

fn main() {}
