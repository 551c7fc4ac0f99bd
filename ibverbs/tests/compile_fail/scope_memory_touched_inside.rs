//! Memory lent for writing is nobody's to touch inside the scope, not even to read.
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
