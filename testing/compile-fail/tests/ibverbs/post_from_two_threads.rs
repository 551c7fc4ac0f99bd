//! A queue pair is used by one thread at a time.
use ibverbs::{QueuePair, Rc, wr};

fn rule(qp: &mut QueuePair<Rc>) {
    std::thread::scope(|scope| {
        scope.spawn(|| drop(qp.post_send(wr::send(wr::Empty))));
        scope.spawn(|| drop(qp.post_send(wr::send(wr::Empty))));
    });
}

fn main() {}
