//! Memory lent with `lend` cannot be the target of a receive or of an RDMA READ.
use ibverbs::{wr, QueuePair, Rc, RemoteMemory};

fn rule(qp: QueuePair<Rc>, memory: &[u8], remote: RemoteMemory) {
    let _ = qp.scope(|scope| {
        let lent = scope.lend(memory).unwrap();
        scope.post_recv(wr::recv(lent.clone())).unwrap();
        scope.post_send(wr::read(lent, remote)).unwrap();
    });
}

fn main() {}
