//! Completions of a plain completion queue have no timestamp.
use ibverbs::{CompletionQueue, Error};

fn rule(cq: &mut CompletionQueue) -> Result<(), Error> {
    for completion in cq.poll()? {
        println!("{}", completion.timestamp());
    }
    Ok(())
}

fn main() {}
