//! A completion queue can be sent to another thread, but not shared by two.
use ibverbs::CompletionQueue;

fn rule(cq: &CompletionQueue) {
    fn shared<T: Sync>(_: &T) {}
    shared(cq);
}

fn main() {}
