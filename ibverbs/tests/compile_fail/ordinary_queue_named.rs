//! A shared receive queue outside XRC domains has no number to name it by.
use ibverbs::SharedReceiveQueue;

fn rule(srq: &SharedReceiveQueue) {
    let _ = srq.srq_num();
}

fn main() {}
