//! Receives are posted before accepting. After that the connection owns the queue pair.

use ibverbs::wr;
use rdmacm::{ConnectParams, ReadyRequest};

fn accept(mut ready: ReadyRequest) {
    let _accepting = ready.start(&ConnectParams::default());
    let _ = ready.qp_mut().post_recv(wr::recv(wr::Empty));
}

fn main() {}
