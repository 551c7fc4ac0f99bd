//! Frozen memory is read-only.
use ibverbs::Frozen;

fn rule(mut frozen: Frozen) {
    frozen[0] = 1;
}

fn main() {}
