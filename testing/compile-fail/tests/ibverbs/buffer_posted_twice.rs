//! A buffer has one owner, so two requests cannot both use it.
use ibverbs::{Buf, QueuePair, Rc, wr};

fn rule(qp: &mut QueuePair<Rc>, buf: Buf) {
    qp.post_send(wr::send(buf)).unwrap();
    qp.post_send(wr::send(buf)).unwrap();
}

fn main() {}
