//! Nothing is posted to a queue pair while it is exposed.
use ibverbs::{CompletionQueue, QueuePair, Rc, wr};

unsafe fn rule(qp: &mut QueuePair<Rc>, cq: &mut CompletionQueue) {
    let _ = unsafe {
        qp.expose_queues(cq, 0, |_| {
            let _ = qp.post_send(wr::send(wr::Empty));
        })
    };
}

fn main() {}
