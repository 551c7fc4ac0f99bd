//! A closed connection has no queue pair and no events.

use rdmacm::Connection;

fn close(mut connection: Connection) {
    let _reclaimed = connection.close();
    let _event = connection.check_event();
}

fn main() {}
