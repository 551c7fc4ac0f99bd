//! What was waited for is over: it cannot be asked again.

use rdmacm::{Connecting, InProgress};

fn finish(mut connecting: Connecting) {
    let _connection = connecting.wait(None);
    let _again = connecting.try_finish();
}

fn main() {}
