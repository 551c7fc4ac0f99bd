//! An XRC send queue pair cannot post receives.
use ibverbs::{Buf, QueuePair, wr, xrc::XrcSend};

fn rule(qp: &mut QueuePair<XrcSend>, buf: Buf) {
    let _ = qp.post_recv(wr::recv(buf));
}

fn main() {}
