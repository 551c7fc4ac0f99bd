//! A listener cannot migrate, because the kernel does not move its pending requests.

use rdmacm::{EventChannel, Listener};

fn migrate(mut listener: Listener, channel: &EventChannel) {
    let _ = listener.migrate(channel);
}

fn main() {}
