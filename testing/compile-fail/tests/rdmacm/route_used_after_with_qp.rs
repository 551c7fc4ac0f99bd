//! A route cannot be used after adding a queue pair.

use ibverbs::{QueuePair, Rc};
use rdmacm::Route;

fn start(route: Route, qp: QueuePair<Rc>) {
    let _ready = route.with_qp(qp);
    let _again = route.context();
}

fn main() {}
