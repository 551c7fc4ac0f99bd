//! Two batches cannot change places: each ends on the queue pair on which it began.
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
