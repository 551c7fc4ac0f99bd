//! A sink that is held cannot be sent: nobody reads it, the device neither.
use ibverbs::{Held, Sink, wr};

fn rule(held: Held<Sink>) {
    let _ = wr::send(held);
}

fn main() {}
