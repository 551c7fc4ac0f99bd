//! A scope stays on its thread, which destroys its queue pairs. Other threads can use those that
//! joined.
use ibverbs::{QueuePair, Rc};

fn rule(qp: &mut QueuePair<Rc>, memory: &[u8]) -> ibverbs::Result<()> {
    qp.scope(|scope| {
        std::thread::scope(|threads| {
            threads.spawn(|| scope.lend(memory).map(drop));
        });
        Ok(())
    })
}

fn main() {}
