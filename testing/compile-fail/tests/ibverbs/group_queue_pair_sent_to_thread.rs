//! A queue pair of a group stays on its thread, because the provider omits locks.
use ibverbs::{QueuePair, Rc, group::Grouped};

fn rule(qp: QueuePair<Grouped<Rc>>) {
    std::thread::spawn(move || drop(qp));
}

fn main() {}
