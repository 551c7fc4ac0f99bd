//! A completion read in place does not outlive the call that it was given to: the poll moves on after it.
use ibverbs::{Error, cq_ex::CompletionQueueEx};

fn rule(cq: &mut CompletionQueueEx) -> Result<(), Error> {
    let mut kept = None;
    cq.poll_each(|completion| -> Result<(), Error> {
        kept = Some(completion);
        Ok(())
    })?;
    drop(kept);
    Ok(())
}

fn main() {}
