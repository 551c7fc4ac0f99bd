//! Memory lent for writing cannot be lent a second time.
use ibverbs::{QueuePair, Rc};

fn rule(qp: QueuePair<Rc>, mut memory: Vec<u8>) {
    let _ = qp.scope(|scope| {
        let _first = scope.lend_mut(&mut memory).unwrap();
        let _second = scope.lend_mut(&mut memory).unwrap();
    });
}

fn main() {}
