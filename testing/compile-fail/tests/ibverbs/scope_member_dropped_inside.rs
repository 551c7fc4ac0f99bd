//! A queue pair that joined a scope cannot be destroyed inside the scope, which ends its requests.
use ibverbs::{QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>, mut other: QueuePair<Rc>) -> ibverbs::Result<()> {
    qp.scope(|scope| {
        scope.join(&mut other)?;
        drop(other);
        Ok(())
    })
}

fn main() {}
