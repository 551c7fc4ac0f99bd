//! An event does not give access to its identifier.

use rdmacm::{CmEvent, Connection};

fn take(event: CmEvent) -> Connection {
    event.id
}

fn main() {}
