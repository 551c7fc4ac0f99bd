//! A usual completion queue has no timestamps.
use ibverbs::{CompletionQueue, Error};

fn rule(cq: &mut CompletionQueue) -> Result<(), Error> {
    for completion in cq.poll()? {
        println!("{}", completion.timestamp());
    }
    Ok(())
}

fn main() {}
