//! A completion queue cannot be polled while completions of an earlier poll are in use.
use ibverbs::CompletionQueue;

fn rule(cq: &mut CompletionQueue) {
    let mut first = cq.poll().unwrap();
    let mut second = cq.poll().unwrap();
    drop((first.next(), second.next()));
}

fn main() {}
