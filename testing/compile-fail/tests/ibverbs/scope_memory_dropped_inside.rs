//! Lent memory cannot be freed inside the scope.
use ibverbs::{wr, QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>, memory: Vec<u8>) -> ibverbs::Result<()> {
    qp.scope(|scope| {
        let lent = scope.lend(&memory)?;
        scope.post_send(wr::send(lent))?;
        drop(memory);
        Ok(())
    })
}

fn main() {}
