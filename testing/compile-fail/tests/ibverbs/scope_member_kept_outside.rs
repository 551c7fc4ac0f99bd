//! A queue pair that joined a scope cannot be used through the scope after its end.
use ibverbs::{QueuePair, Rc, scope::ScopedQueuePair};

fn rule(qp: &mut QueuePair<Rc>, other: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    let mut kept: Option<ScopedQueuePair<'_, Rc>> = None;
    qp.scope(|scope| {
        kept = Some(scope.join(other)?);
        Ok(())
    })
}

fn main() {}
