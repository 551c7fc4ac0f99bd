//! A completion read in place is consumed when it is retired.
use ibverbs::{Error, QueuePair, Rc, cq_ex::CompletionQueueEx};

fn rule(cq: &mut CompletionQueueEx, qp: &mut QueuePair<Rc>) -> Result<usize, Error> {
    cq.poll_each(|completion| -> Result<(), Error> {
        drop(qp.retire_in_place(completion)?);
        drop(qp.retire_in_place(completion)?);
        Ok(())
    })
}

fn main() {}
