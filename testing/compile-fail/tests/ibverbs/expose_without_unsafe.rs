//! Lending needs a promise about the requests that are written.
use ibverbs::{CompletionQueue, QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>, cq: &mut CompletionQueue) {
    let _ = qp.expose_queues(cq, 0, |_| ());
}

fn main() {}
