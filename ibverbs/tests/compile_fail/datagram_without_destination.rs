//! A datagram goes to somebody.
use ibverbs::{Buf, QueuePair, Ud, wr};

fn rule(qp: &mut QueuePair<Ud>, buf: Buf) {
    let _ = qp.post_send(wr::send(buf));
}

fn main() {}
