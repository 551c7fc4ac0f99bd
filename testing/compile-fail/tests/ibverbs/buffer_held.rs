//! A buffer has one owner, so a queue pair cannot hold it.
use ibverbs::{Buf, QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>, buf: &Buf) {
    let _ = qp.hold(buf);
}

fn main() {}
