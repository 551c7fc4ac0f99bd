//! A queue pair that joined a scope is reached only through the scope.
use ibverbs::{wr, QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>, mut other: QueuePair<Rc>) -> ibverbs::Result<()> {
    qp.scope(|scope| {
        let _joined = scope.join(&mut other)?;
        Ok(other.post_send(wr::send(wr::Empty))?)
    })
}

fn main() {}
