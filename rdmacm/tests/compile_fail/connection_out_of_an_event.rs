//! What happened to a connection gives no other connection: only a listener's requests do.

use rdmacm::{CmEvent, Connection};

fn take(event: CmEvent) -> Connection {
    event.id
}

fn main() {}
