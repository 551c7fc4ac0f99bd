//! Frozen memory is named in requests only once a queue pair holds it.
use ibverbs::{Frozen, wr};

fn rule(frozen: Frozen) {
    let _ = wr::send(frozen);
}

fn main() {}
