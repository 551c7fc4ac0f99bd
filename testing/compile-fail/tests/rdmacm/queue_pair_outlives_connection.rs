//! A borrowed queue pair cannot outlive its connection.

use ibverbs::{QueuePair, Rc};
use rdmacm::Connection;

fn lend(mut connection: Connection) -> &'static mut QueuePair<Rc> {
    let qp = connection.qp_mut();
    drop(connection);
    qp
}

fn main() {}
