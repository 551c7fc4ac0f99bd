//! A connected queue pair sends to its peer, and to nobody else.
use ibverbs::{Buf, Destination, QueuePair, Rc, wr};

fn rule(qp: &mut QueuePair<Rc>, buf: Buf, destination: Destination) {
    let _ = qp.post_send(wr::send_to(buf, destination));
}

fn main() {}
