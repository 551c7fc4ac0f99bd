//! A closed connection cannot be used.

use rdmacm::Connection;

fn close(mut connection: Connection) {
    let _reclaimed = connection.close();
    let _event = connection.try_event();
}

fn main() {}
