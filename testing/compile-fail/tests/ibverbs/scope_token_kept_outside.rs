//! A token of lent memory cannot be stored outside its scope.
use ibverbs::{QueuePair, Rc, scope::LentMut};

fn rule(qp: &mut QueuePair<Rc>, memory: &mut [u8]) -> ibverbs::Result<()> {
    let mut kept: Option<LentMut<'_>> = None;
    qp.scope(|scope| {
        kept = Some(scope.lend_mut(memory)?);
        Ok(())
    })
}

fn main() {}
