//! The state does not change during a batch.
use ibverbs::{Error, QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>) {
    let _ = qp.batch(|_| -> Result<(), Error> { qp.to_error() });
}

fn main() {}
