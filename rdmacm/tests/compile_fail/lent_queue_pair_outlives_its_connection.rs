//! The queue pair of a connection is lent: it does not outlive the identifier.

use ibverbs::{QueuePair, Rc};
use rdmacm::Connection;

fn lend(mut connection: Connection) -> &'static mut QueuePair<Rc> {
    let qp = connection.qp_mut();
    drop(connection);
    qp
}

fn main() {}
