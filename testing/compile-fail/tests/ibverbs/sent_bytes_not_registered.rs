//! Only registered memory can be sent. The message says how to send other bytes.
use ibverbs::{QueuePair, Rc, wr};

fn rule(qp: &mut QueuePair<Rc>, bytes: Vec<u8>) {
    let _ = qp.post_send(wr::send(bytes));
}

fn main() {}
