//! A read cannot end in frozen memory.
use ibverbs::{Frozen, Held, RemoteMemory, wr};

fn rule(held: Held<Frozen>, remote: RemoteMemory) {
    let _ = wr::read(held, remote);
}

fn main() {}
