//! A sink cannot be read.
use ibverbs::Sink;

fn rule(sink: &Sink) -> u8 {
    sink[0]
}

fn main() {}
