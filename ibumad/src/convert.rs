//! One converter for each way in which libibumad's functions return.

#![allow(unsafe_code)]

use crate::errno::Errno;
use crate::error::{Error, Result};

/// Sets `errno` to 0, so that an old reason is not taken for a new one.
pub(crate) fn clear() {
    // SAFETY: the location belongs to the calling thread and is always valid.
    unsafe {
        *libc::__errno_location() = 0;
    }
}

/// The convention "not negative, or a negative errno"; behind -EIO (and -1) the true reason is
/// often in `errno`.
pub(crate) fn not_negative(
    call: &'static str,
    what: impl FnOnce() -> String,
    f: impl FnOnce() -> i32,
) -> Result<i32> {
    clear();
    let returned = f();
    if returned >= 0 {
        Ok(returned)
    } else {
        Err(Error::of_call(call, reason(returned), what()))
    }
}

/// The convention "0, or a positive errno".
pub(crate) fn zero_or_errno(
    call: &'static str,
    what: impl FnOnce() -> String,
    returned: i32,
) -> Result<()> {
    if returned == 0 {
        Ok(())
    } else {
        Err(Error::of_call(call, Errno(returned.wrapping_abs()), what()))
    }
}

/// Why a call returned this negative number.
pub(crate) fn reason(returned: i32) -> Errno {
    match Errno::last() {
        Errno(0) => Errno(returned.wrapping_abs()),
        last if returned == -libc::EIO || returned == -1 => last,
        _ => Errno(returned.wrapping_abs()),
    }
}
