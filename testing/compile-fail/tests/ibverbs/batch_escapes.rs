//! A batch cannot be used outside its closure.
use ibverbs::{Error, QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>) {
    let mut escaped = None;
    let _ = qp.batch(|batch| -> Result<(), Error> {
        escaped = Some(batch);
        Ok(())
    });
    drop(escaped);
}

fn main() {}
