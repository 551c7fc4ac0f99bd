//! A buffer that is posted as a receive cannot also be sent.
use ibverbs::{Buf, QueuePair, Rc, wr};

fn rule(qp: &mut QueuePair<Rc>, buf: Buf) {
    qp.post_recv(wr::recv(buf)).unwrap();
    qp.post_send(wr::send(buf)).unwrap();
}

fn main() {}
