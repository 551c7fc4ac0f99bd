//! A posted buffer cannot be read before its completion.
use ibverbs::{Buf, QueuePair, Rc, wr};

fn rule(qp: &mut QueuePair<Rc>, buf: Buf) {
    qp.post_send(wr::send(buf)).unwrap();
    println!("{}", buf[0]);
}

fn main() {}
