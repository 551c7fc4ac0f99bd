//! A destroyed queue pair cannot be used.
use ibverbs::{QueuePair, Rc, wr};

fn rule(mut qp: QueuePair<Rc>) {
    let _ = qp.destroy();
    let _ = qp.post_send(wr::send(wr::Empty));
}

fn main() {}
