//! A completion of an extended completion queue is valid until the next poll.
use ibverbs::{Error, cq_ex::{CompletionQueueEx, CqFields}};

fn rule(cq: &mut CompletionQueueEx<CqFields>) -> Result<(), Error> {
    let kept = cq.poll()?.next();
    let _next = cq.poll()?;
    drop(kept);
    Ok(())
}

fn main() {}
