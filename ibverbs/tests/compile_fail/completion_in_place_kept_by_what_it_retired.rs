//! What was retired in place says more while the provider shows it, and no longer.
use ibverbs::{Error, QueuePair, Rc, cq_ex::CompletionQueueEx};

fn rule(cq: &mut CompletionQueueEx, qp: &mut QueuePair<Rc>) -> Result<(), Error> {
    let mut kept = Vec::new();
    cq.poll_each(|completion| -> Result<(), Error> {
        kept.push(qp.retire_in_place(completion)?);
        Ok(())
    })?;
    println!("{}", kept[0].byte_len());
    Ok(())
}

fn main() {}
