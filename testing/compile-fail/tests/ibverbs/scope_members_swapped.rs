//! The queue pairs of two scopes cannot be swapped.
use ibverbs::{QueuePair, Rc};

fn rule(one: &mut QueuePair<Rc>, two: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    one.scope(|first| {
        two.scope(|second| {
            std::mem::swap(&mut **first, &mut **second);
            Ok(())
        })
    })
}

fn main() {}
