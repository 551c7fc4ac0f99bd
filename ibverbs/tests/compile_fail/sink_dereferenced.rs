//! A sink has no bytes to refer to.
use ibverbs::Sink;

fn rule(sink: &Sink) -> &[u8] {
    &**sink
}

fn main() {}
