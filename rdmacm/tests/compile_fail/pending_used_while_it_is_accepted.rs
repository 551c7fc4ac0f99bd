//! Receives are posted before the acceptance is sent; after it the queue pair is back with the connection.

use ibverbs::wr;
use rdmacm::{ConnectParams, ReadyRequest};

fn accept(mut pending: ReadyRequest) {
    let _accepting = pending.start(&ConnectParams::default());
    let _ = pending.qp_mut().post_recv(wr::recv(wr::Empty));
}

fn main() {}
