//! Two scopes cannot be swapped: each ends the requests of its own queue pair.
use ibverbs::{QueuePair, Rc};

fn rule(one: QueuePair<Rc>, two: QueuePair<Rc>) {
    let _ = one.scope(|first| {
        let _ = two.scope(|second| std::mem::swap(first, second));
    });
}

fn main() {}
