//! Memory lent for writing cannot be read inside the scope.
use ibverbs::{wr, QueuePair, Rc};

fn rule(qp: QueuePair<Rc>) {
    let mut memory = [0_u8; 64];
    let _ = qp.scope(|scope| {
        let lent = scope.lend_mut(&mut memory).unwrap();
        scope.post_recv(wr::recv(lent)).unwrap();
        memory[0]
    });
}

fn main() {}
