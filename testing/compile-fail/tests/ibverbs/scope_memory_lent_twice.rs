//! Memory lent for writing cannot be lent a second time.
use ibverbs::{QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>, mut memory: Vec<u8>) -> ibverbs::Result<()> {
    qp.scope(|scope| {
        let _first = scope.lend_mut(&mut memory)?;
        let _second = scope.lend_mut(&mut memory)?;
        Ok(())
    })
}

fn main() {}
