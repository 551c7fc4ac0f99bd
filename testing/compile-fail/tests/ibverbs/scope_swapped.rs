//! Two scopes cannot be swapped: each ends the requests of its own queue pairs.
use ibverbs::{QueuePair, Rc};

fn rule(one: &mut QueuePair<Rc>, two: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    one.scope(|first| {
        two.scope(|second| {
            std::mem::swap(first, second);
            Ok(())
        })
    })
}

fn main() {}
