//! A binding is posted once.
use ibverbs::{wr, Binding, QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>, binding: Binding) {
    let _ = qp.post_send(wr::bind(binding));
    let _ = qp.post_send(wr::bind(binding));
}

fn main() {}
