//! A completion lives until the next poll, not longer.
use ibverbs::CompletionQueue;

fn rule(cq: &mut CompletionQueue) {
    let kept = cq.poll().unwrap().next();
    cq.poll().unwrap();
    drop(kept);
}

fn main() {}
