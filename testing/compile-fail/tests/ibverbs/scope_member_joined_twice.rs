//! A queue pair cannot join a scope twice: each value would post at the same time.
use ibverbs::{QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>, other: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    qp.scope(|scope| {
        scope.join(other)?;
        scope.join(other)?;
        Ok(())
    })
}

fn main() {}
