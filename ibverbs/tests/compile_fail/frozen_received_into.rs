//! Frozen memory is read-only to the device too.
use ibverbs::{Frozen, Held, wr};

fn rule(held: Held<Frozen>) {
    let _ = wr::recv(held);
}

fn main() {}
