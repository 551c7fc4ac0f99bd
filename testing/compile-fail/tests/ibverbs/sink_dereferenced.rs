//! A sink gives no references to its bytes.
use ibverbs::Sink;

fn rule(sink: &Sink) -> &[u8] {
    &**sink
}

fn main() {}
