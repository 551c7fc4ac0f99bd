//! A batch cannot be returned from its closure.
use ibverbs::{Error, QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>) {
    let _ = qp.batch(|batch| Ok::<_, Error>(batch));
}

fn main() {}
