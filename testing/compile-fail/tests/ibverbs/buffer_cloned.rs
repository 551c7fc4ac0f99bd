//! A buffer is not `Clone`: it has one owner.
use ibverbs::Buf;

fn rule(buf: &Buf) -> Buf {
    Clone::clone(buf)
}

fn main() {}
