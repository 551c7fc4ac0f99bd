//! A token of lent memory does not leave its scope with the closure's value.
use ibverbs::{QueuePair, Rc};

fn rule(qp: QueuePair<Rc>, memory: &[u8]) {
    let _ = qp.scope(|scope| scope.lend(memory));
}

fn main() {}
