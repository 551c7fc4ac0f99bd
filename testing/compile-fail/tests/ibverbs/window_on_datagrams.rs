//! A UD queue pair cannot bind memory windows.
use ibverbs::{QueuePair, Ud, mw::Binding, wr};

fn rule(qp: &mut QueuePair<Ud>, binding: Binding) {
    let _ = qp.post_send(wr::bind(binding));
}

fn main() {}
