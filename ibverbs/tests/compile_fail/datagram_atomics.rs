//! A datagram queue pair has no atomics.
use ibverbs::{Buf, QueuePair, RemoteMemory, Ud, wr};

fn rule(qp: &mut QueuePair<Ud>, buf: Buf, remote: RemoteMemory) {
    let _ = qp.post_send(wr::compare_swap(buf, remote, 0, 1));
}

fn main() {}
