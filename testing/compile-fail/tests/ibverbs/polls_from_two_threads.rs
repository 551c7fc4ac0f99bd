//! A completion queue is polled by one thread at a time.
use ibverbs::CompletionQueue;

fn rule(cq: &mut CompletionQueue) {
    std::thread::scope(|scope| {
        scope.spawn(|| drop(cq.poll()));
        scope.spawn(|| drop(cq.poll()));
    });
}

fn main() {}
