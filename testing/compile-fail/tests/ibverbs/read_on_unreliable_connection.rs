//! An unreliable connection has no RDMA reads.
use ibverbs::{Buf, QueuePair, RemoteMemory, Uc, wr};

fn rule(qp: &mut QueuePair<Uc>, buf: Buf, remote: RemoteMemory) {
    let _ = qp.post_send(wr::read(buf, remote));
}

fn main() {}
