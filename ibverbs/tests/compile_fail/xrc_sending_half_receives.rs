//! The sending half of an extended reliable connection receives nothing.
use ibverbs::{Buf, QueuePair, wr, xrc::XrcSend};

fn rule(qp: &mut QueuePair<XrcSend>, buf: Buf) {
    let _ = qp.post_recv(wr::recv(buf));
}

fn main() {}
