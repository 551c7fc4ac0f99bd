//! A datagram queue pair has no peer to connect to.
use ibverbs::{ConnectedTransport, QueuePair, Ud};

fn connect<T: ConnectedTransport>(_: &mut QueuePair<T>) {}

fn rule(qp: &mut QueuePair<Ud>) {
    connect(qp);
}

fn main() {}
