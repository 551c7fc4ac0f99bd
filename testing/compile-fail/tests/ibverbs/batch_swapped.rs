//! Two batches cannot be swapped: each is posted on the queue pair that began it.
use ibverbs::{Error, QueuePair, Rc};

fn rule(one: &mut QueuePair<Rc>, two: &mut QueuePair<Rc>) {
    let _ = one.batch(|first| -> Result<(), Error> {
        two.batch(|second| -> Result<(), Error> {
            std::mem::swap(first, second);
            Ok(())
        })
    });
}

fn main() {}
