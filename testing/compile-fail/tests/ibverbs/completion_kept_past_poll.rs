//! A completion is valid until the next poll.
use ibverbs::CompletionQueue;

fn rule(cq: &mut CompletionQueue) {
    let kept = cq.poll().unwrap().next();
    cq.poll().unwrap();
    drop(kept);
}

fn main() {}
