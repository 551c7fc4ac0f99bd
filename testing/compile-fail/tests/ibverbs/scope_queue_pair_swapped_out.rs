//! The queue pair cannot be moved out of its scope, where it would outlive the lent memory.
use ibverbs::{QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>, mut other: QueuePair<Rc>, memory: &mut [u8]) -> ibverbs::Result<()> {
    qp.scope(|scope| {
        scope.lend_mut(memory)?;
        std::mem::swap(scope.qp(), &mut other);
        Ok(())
    })
}

fn main() {}
