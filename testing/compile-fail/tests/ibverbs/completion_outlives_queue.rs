//! A completion does not outlive its completion queue.
use ibverbs::CompletionQueue;

fn rule(mut cq: CompletionQueue) {
    let kept = cq.poll().unwrap().next();
    drop(cq);
    drop(kept);
}

fn main() {}
