//! The return conventions of libibumad that [`rdma_types::convert`] does not cover.

use rdma_types::convert::clear_errno;
use rdma_types::{Errno, Result};

use crate::error::call_failed;

/// Converts "a number, or a negative errno".
pub(crate) fn not_negative(
    call: &'static str,
    detail: impl FnOnce() -> String,
    f: impl FnOnce() -> i32,
) -> Result<i32> {
    clear_errno();
    let returned = f();
    if returned >= 0 {
        Ok(returned)
    } else {
        Err(call_failed(call, cause(returned), detail()))
    }
}

/// Returns the cause of a negative return value.
///
/// libibumad returns -EIO or -1 for many failures and leaves the more precise cause in `errno`.
pub(crate) fn cause(returned: i32) -> Errno {
    match Errno::last() {
        Errno(0) => Errno::from_return(returned),
        last if returned == -libc::EIO || returned == -1 => last,
        _ => Errno::from_return(returned),
    }
}
