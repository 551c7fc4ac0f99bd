//! A token for held memory cannot be constructed: `hold` returns it.
use ibverbs::{Held, Sink};

fn rule(sge: rdma_sys::ibv_sge, held: Held<Sink>) -> Held<Sink> {
    Held { sge, ..held }
}

fn main() {}
