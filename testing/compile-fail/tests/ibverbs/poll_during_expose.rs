//! A completion queue is not polled while it is exposed.
use ibverbs::{CompletionQueue, QueuePair, Rc};

unsafe fn rule(qp: &mut QueuePair<Rc>, cq: &mut CompletionQueue) {
    let _ = unsafe {
        qp.expose_queues(cq, 0, |_| {
            let _ = cq.poll();
        })
    };
}

fn main() {}
