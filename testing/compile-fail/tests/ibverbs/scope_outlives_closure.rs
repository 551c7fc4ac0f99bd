//! A scope cannot be used outside its closure.
use ibverbs::{Error, QueuePair, Rc, scope::Scope};

fn rule(qp: &mut QueuePair<Rc>) {
    let mut kept: Option<&mut Scope<'_, '_, Rc>> = None;
    let _ = qp.scope(|scope| {
        kept = Some(scope);
        Ok::<(), Error>(())
    });
}

fn main() {}
