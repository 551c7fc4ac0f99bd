//! Memory lent with `lend` cannot be the target of a receive or of an RDMA READ.
use ibverbs::{wr, QueuePair, Rc, RemoteMemory};

fn rule(qp: &mut QueuePair<Rc>, memory: &[u8], remote: RemoteMemory) -> ibverbs::Result<()> {
    qp.scope(|scope| {
        let lent = scope.lend(memory)?;
        scope.post_recv(wr::recv(lent.clone())).unwrap();
        scope.post_send(wr::read(lent, remote)).unwrap();
        Ok(())
    })
}

fn main() {}
