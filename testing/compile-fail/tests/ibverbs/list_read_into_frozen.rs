//! A list of read-only memory cannot be read into.
use ibverbs::{Frozen, HeldList, RemoteMemory, wr};

fn rule(list: HeldList<Frozen>, remote: RemoteMemory) {
    let _ = wr::read(list, remote);
}

fn main() {}
