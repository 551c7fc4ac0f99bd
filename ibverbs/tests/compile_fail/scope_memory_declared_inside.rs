//! Memory declared inside the scope cannot be lent: the scope outlives it.
use ibverbs::{wr, QueuePair, Rc};

fn rule(qp: QueuePair<Rc>) {
    let _ = qp.scope(|scope| {
        let mut memory = [0_u8; 64];
        let lent = scope.lend_mut(&mut memory).unwrap();
        scope.post_recv(wr::recv(lent)).unwrap();
    });
}

fn main() {}
