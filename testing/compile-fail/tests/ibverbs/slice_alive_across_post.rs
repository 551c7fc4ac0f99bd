//! A reference to a buffer cannot outlive the post: the device may write to the buffer.
use ibverbs::{Buf, QueuePair, Rc, wr};

fn rule(qp: &mut QueuePair<Rc>, buf: Buf) {
    let slice: &[u8] = &buf;
    qp.post_recv(wr::recv(buf)).unwrap();
    println!("{}", slice[0]);
}

fn main() {}
