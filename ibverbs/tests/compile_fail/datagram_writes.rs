//! A datagram queue pair has no writes.
use ibverbs::{Buf, QueuePair, RemoteMemory, Ud, wr};

fn rule(qp: &mut QueuePair<Ud>, buf: Buf, remote: RemoteMemory) {
    let _ = qp.post_send(wr::write(buf, remote));
}

fn main() {}
