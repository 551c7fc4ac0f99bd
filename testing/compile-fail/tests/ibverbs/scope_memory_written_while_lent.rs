//! Memory lent for reading cannot be modified inside the scope.
use ibverbs::{wr, QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>, mut memory: Vec<u8>) -> ibverbs::Result<()> {
    qp.scope(|scope| {
        let lent = scope.lend(&memory)?;
        scope.post_send(wr::send(lent))?;
        memory[0] = 1;
        Ok(())
    })
}

fn main() {}
