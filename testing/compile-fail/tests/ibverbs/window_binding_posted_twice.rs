//! A binding is posted once.
use ibverbs::{QueuePair, Rc, mw::Binding, wr};

fn rule(qp: &mut QueuePair<Rc>, binding: Binding) {
    let _ = qp.post_send(wr::bind(binding));
    let _ = qp.post_send(wr::bind(binding));
}

fn main() {}
