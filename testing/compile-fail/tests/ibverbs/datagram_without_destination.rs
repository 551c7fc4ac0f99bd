//! A datagram names its destination.
use ibverbs::{Buf, QueuePair, Ud, wr};

fn rule(qp: &mut QueuePair<Ud>, buf: Buf) {
    let _ = qp.post_send(wr::send(buf));
}

fn main() {}
