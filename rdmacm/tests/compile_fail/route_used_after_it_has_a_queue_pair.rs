//! An identifier is in one state at a time: a route that got a queue pair is no route any more.

use ibverbs::{QueuePair, Rc};
use rdmacm::Route;

fn start(route: Route, qp: QueuePair<Rc>) {
    let _ready = route.with_qp(qp);
    let _again = route.context();
}

fn main() {}
