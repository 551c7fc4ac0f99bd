//! An XRC receive queue pair cannot post sends.
use ibverbs::{Buf, wr, xrc::XrcRecvQueuePair};

fn rule(qp: &mut XrcRecvQueuePair, buf: Buf) {
    let _ = qp.post_send(wr::send(buf));
}

fn main() {}
