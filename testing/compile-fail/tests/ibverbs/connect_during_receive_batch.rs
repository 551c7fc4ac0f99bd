//! The state of a queue pair cannot change during a batch of receives.
use ibverbs::{Endpoint, Error, QueuePair, Rc, RcPath};

fn rule(qp: &mut QueuePair<Rc>, path: &RcPath, remote: &Endpoint) {
    let _ = qp.recv_batch(|_| -> Result<(), Error> { qp.connect(path, remote) });
}

fn main() {}
