//! The state of a queue pair cannot change during a batch of sends.
use ibverbs::{Error, QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>) {
    let _ = qp.batch(|_| -> Result<(), Error> { qp.to_error() });
}

fn main() {}
