//! A token of lent memory cannot be stored outside its scope.
use ibverbs::{QueuePair, Rc, scope::LentMut};

fn rule(qp: QueuePair<Rc>, memory: &mut [u8]) {
    let mut kept: Option<LentMut<'_>> = None;
    let _ = qp.scope(|scope| kept = scope.lend_mut(memory).ok());
}

fn main() {}
