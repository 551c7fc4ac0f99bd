//! The receiving half of an extended reliable connection posts nothing.
use ibverbs::{Buf, wr, xrc::XrcRecvQueuePair};

fn rule(qp: &mut XrcRecvQueuePair, buf: Buf) {
    let _ = qp.post_send(wr::send(buf));
}

fn main() {}
