//! A membership cannot be used after leaving the group.

use ibverbs::{QueuePair, Ud};
use rdmacm::datagram::multicast::Membership;

fn leave(member: Membership, qp: &mut QueuePair<Ud>) {
    let _ = member.leave();
    let _ = member.attach(qp);
}

fn main() {}
