//! One completion queue is polled by one caller at a time.
use ibverbs::CompletionQueue;

fn rule(cq: &mut CompletionQueue) {
    let mut first = cq.poll().unwrap();
    let mut second = cq.poll().unwrap();
    drop((first.next(), second.next()));
}

fn main() {}
