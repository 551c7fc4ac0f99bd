//! Messages arrive in registered memory only. The message names the types.
use ibverbs::{QueuePair, Rc, wr};

fn rule(qp: &mut QueuePair<Rc>, bytes: Vec<u8>) {
    let _ = qp.post_recv(wr::recv(bytes));
}

fn main() {}
