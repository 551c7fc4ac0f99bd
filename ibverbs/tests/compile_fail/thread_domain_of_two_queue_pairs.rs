//! A parent domain creates one queue pair, because two could be used by two threads.
use ibverbs::{CompletionQueue, QpOptions, Rc, Result, pd::ParentDomain};

fn rule(alone: ParentDomain, cq: &CompletionQueue) -> Result<()> {
    let _a = alone.create_qp::<Rc>(cq, cq, QpOptions::default())?;
    let _b = alone.create_qp::<Rc>(cq, cq, QpOptions::default())?;
    Ok(())
}

fn main() {}
