//! A field that a completion queue was not made with cannot be read in place either.
use ibverbs::{Error, cq_ex::CompletionQueueEx};

fn rule(cq: &mut CompletionQueueEx) -> Result<usize, Error> {
    cq.poll_each(|completion| -> Result<(), Error> {
        println!("{}", completion.timestamp());
        Ok(())
    })
}

fn main() {}
