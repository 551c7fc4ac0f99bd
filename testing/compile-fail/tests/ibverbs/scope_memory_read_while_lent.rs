//! Memory lent for writing cannot be read inside the scope.
use ibverbs::{wr, QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>) -> ibverbs::Result<u8> {
    let mut memory = [0_u8; 64];
    qp.scope(|scope| {
        let lent = scope.lend_mut(&mut memory)?;
        scope.post_recv(wr::recv(lent))?;
        Ok(memory[0])
    })
}

fn main() {}
