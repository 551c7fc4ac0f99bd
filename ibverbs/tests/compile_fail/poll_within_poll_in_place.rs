//! A completion queue is not polled within a poll of its own.
use ibverbs::{Error, cq_ex::CompletionQueueEx};

fn rule(cq: &mut CompletionQueueEx) -> Result<usize, Error> {
    cq.poll_each(|_| -> Result<(), Error> {
        println!("{}", cq.poll()?.len());
        Ok(())
    })
}

fn main() {}
