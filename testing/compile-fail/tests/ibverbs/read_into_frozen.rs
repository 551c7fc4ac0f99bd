//! An RDMA read needs memory that can be written.
use ibverbs::{Frozen, Held, RemoteMemory, wr};

fn rule(held: Held<Frozen>, remote: RemoteMemory) {
    let _ = wr::read(held, remote);
}

fn main() {}
