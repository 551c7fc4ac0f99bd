//! Inside a scope, the queue pair is reached only through the scope.
use ibverbs::{wr, QueuePair, Rc};

fn rule(mut qp: QueuePair<Rc>) {
    let _ = qp.scope(|_scope| qp.post_send(wr::send(wr::Empty)).is_ok());
}

fn main() {}
