//! What many requests may share is this crate's to say.
use ibverbs::{QueuePair, Rc};

struct Mine;

fn rule(qp: &mut QueuePair<Rc>, mine: &Mine) {
    let _ = qp.hold(mine);
}

fn main() {}
