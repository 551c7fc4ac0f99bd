//! An unreliable connection has no atomics.
use ibverbs::{Buf, QueuePair, RemoteMemory, Uc, wr};

fn rule(qp: &mut QueuePair<Uc>, buf: Buf, remote: RemoteMemory) {
    let _ = qp.post_send(wr::fetch_add(buf, remote, 1));
}

fn main() {}
