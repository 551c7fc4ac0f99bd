//! A scope cannot be used outside its closure.
use ibverbs::{QueuePair, Rc, scope::Scope};

fn rule(qp: QueuePair<Rc>) {
    let mut kept: Option<&mut Scope<'_, '_, Rc>> = None;
    let _ = qp.scope(|scope| kept = Some(scope));
}

fn main() {}
