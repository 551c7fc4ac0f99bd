//! An operation cannot be used after waiting for it.

use rdmacm::{Connecting, InProgress};

fn finish(mut connecting: Connecting) {
    let _connection = connecting.wait(None);
    let _again = connecting.try_finish();
}

fn main() {}
