//! A parent domain creates only one queue pair, because two threads could use two of them at once.
use ibverbs::{CompletionQueue, QpOptions, Rc, Result, pd::ParentDomain};

fn rule(parent: ParentDomain, cq: &CompletionQueue) -> Result<()> {
    let _a = parent.create_qp::<Rc>(cq, cq, QpOptions::default())?;
    let _b = parent.create_qp::<Rc>(cq, cq, QpOptions::default())?;
    Ok(())
}

fn main() {}
