//! A datagram queue pair has no reads.
use ibverbs::{Buf, QueuePair, RemoteMemory, Ud, wr};

fn rule(qp: &mut QueuePair<Ud>, buf: Buf, remote: RemoteMemory) {
    let _ = qp.post_send(wr::read(buf, remote));
}

fn main() {}
