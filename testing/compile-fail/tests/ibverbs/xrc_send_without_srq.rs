//! A request of an XRC queue pair names the shared receive queue of the peer.
use ibverbs::{Buf, QueuePair, wr, xrc::XrcSend};

fn rule(qp: &mut QueuePair<XrcSend>, buf: Buf) {
    let _ = qp.post_send(wr::send(buf));
}

fn main() {}
