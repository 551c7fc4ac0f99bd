//! Inside a scope, the queue pair is reached only through the scope.
use ibverbs::{wr, QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    qp.scope(|_scope| Ok(qp.post_send(wr::send(wr::Empty))?))
}

fn main() {}
