//! A completion with more fields does not outlive the next poll either.
use ibverbs::{Error, cq_ex::CompletionQueueEx};

fn rule(cq: &mut CompletionQueueEx) -> Result<(), Error> {
    let kept = cq.poll()?.next();
    let _next = cq.poll()?;
    drop(kept);
    Ok(())
}

fn main() {}
