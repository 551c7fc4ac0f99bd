//! A listener stays on its channel: the kernel would leave requests behind.

use rdmacm::{EventChannel, Listener};

fn migrate(mut listener: Listener, channel: &EventChannel) {
    let _ = listener.migrate(channel);
}

fn main() {}
