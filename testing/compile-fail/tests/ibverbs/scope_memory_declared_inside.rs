//! Memory declared inside the scope cannot be lent: the scope outlives it.
use ibverbs::{wr, QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    qp.scope(|scope| {
        let mut memory = [0_u8; 64];
        let lent = scope.lend_mut(&mut memory)?;
        Ok(scope.post_recv(wr::recv(lent))?)
    })
}

fn main() {}
