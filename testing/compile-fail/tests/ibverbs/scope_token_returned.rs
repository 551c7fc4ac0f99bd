//! A token of lent memory cannot be returned from its scope.
use ibverbs::{QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>, memory: &[u8]) {
    let _ = qp.scope(|scope| scope.lend(memory));
}

fn main() {}
