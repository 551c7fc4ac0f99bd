//! Retiring consumes the completion, so a request retires once.
use ibverbs::{Completion, QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>, completion: Completion<'_>) {
    let first = qp.retire(completion);
    let second = qp.retire(completion);
    drop((first, second));
}

fn main() {}
