//! A request cannot be posted directly during a batch.
use ibverbs::{Error, QueuePair, Rc, wr};

fn rule(qp: &mut QueuePair<Rc>) {
    let _ = qp.batch(|_| -> Result<(), Error> {
        qp.post_send(wr::send(wr::Empty))?;
        Ok(())
    });
}

fn main() {}
