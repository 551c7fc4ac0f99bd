//! Memory that requests share is held by the queue pair first.
use ibverbs::{Frozen, wr};

fn rule(memory: Frozen) {
    let _ = wr::send(memory);
}

fn main() {}
