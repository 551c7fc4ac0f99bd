//! Shared receive queues have two types.
use ibverbs::{Rc, SharedReceiveQueue};

fn rule(_: SharedReceiveQueue<Rc>) {}

fn main() {}
