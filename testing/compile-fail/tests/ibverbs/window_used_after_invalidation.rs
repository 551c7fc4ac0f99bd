//! The remote key of a window cannot be read after its invalidation was posted.
use ibverbs::{QueuePair, Rc, RemoteMemory, mw::{BoundWindow, Type2}, wr};

fn rule(qp: &mut QueuePair<Rc>, bound: BoundWindow<Type2>) -> RemoteMemory {
    let _ = qp.post_send(wr::invalidate(bound));
    bound.remote()
}

fn main() {}
