//! Two scopes cannot change places: each ends with its own loans.
use ibverbs::{QueuePair, Rc};

fn rule(one: QueuePair<Rc>, two: QueuePair<Rc>) {
    let _ = one.scope(|first| {
        let _ = two.scope(|second| std::mem::swap(first, second));
    });
}

fn main() {}
