//! A shared receive queue outside XRC domains has no SRQ number.
use ibverbs::SharedReceiveQueue;

fn rule(srq: &SharedReceiveQueue) {
    let _ = srq.srq_num();
}

fn main() {}
