//! Other crates cannot implement `InProgress`.

use std::os::fd::{AsFd, BorrowedFd};

use rdmacm::InProgress;

struct Operation;

impl AsFd for Operation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        unreachable!()
    }
}

impl InProgress for Operation {
    type Output = ();
    type Error = ibverbs::Error;

    fn try_finish(&mut self) -> Result<Option<()>, ibverbs::Error> {
        Ok(None)
    }
}

fn main() {}
