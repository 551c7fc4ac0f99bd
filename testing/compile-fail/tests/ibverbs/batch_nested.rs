//! A queue pair has at most one batch at a time.
use ibverbs::{Error, QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>) {
    let _ = qp.batch(|_| -> Result<(), Error> { qp.batch(|_| Ok(())) });
}

fn main() {}
