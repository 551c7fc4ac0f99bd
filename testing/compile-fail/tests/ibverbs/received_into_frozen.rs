//! A frozen buffer cannot be received into.
use ibverbs::{Frozen, Held, QueuePair, Rc, wr};

fn rule(qp: &mut QueuePair<Rc>, held: Held<Frozen>) {
    let _ = qp.post_recv(wr::recv(held));
}

fn main() {}
