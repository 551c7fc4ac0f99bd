//! A buffer that was posted is gone until its completion: it cannot be read.
use ibverbs::{Buf, QueuePair, Rc, wr};

fn rule(qp: &mut QueuePair<Rc>, buf: Buf) {
    qp.post_send(wr::send(buf)).unwrap();
    println!("{}", buf[0]);
}

fn main() {}
