//! Lent memory cannot be freed inside the scope.
use ibverbs::{wr, QueuePair, Rc};

fn rule(qp: QueuePair<Rc>, memory: Vec<u8>) {
    let _ = qp.scope(|scope| {
        let lent = scope.lend(&memory).unwrap();
        scope.post_send(wr::send(lent)).unwrap();
        drop(memory);
    });
}

fn main() {}
