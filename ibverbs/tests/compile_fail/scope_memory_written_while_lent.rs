//! Memory lent for reading cannot be modified inside the scope.
use ibverbs::{wr, QueuePair, Rc};

fn rule(qp: QueuePair<Rc>, mut memory: Vec<u8>) {
    let _ = qp.scope(|scope| {
        let lent = scope.lend(&memory).unwrap();
        scope.post_send(wr::send(lent)).unwrap();
        memory[0] = 1;
    });
}

fn main() {}
