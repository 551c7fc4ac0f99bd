//! One converter for each way in which C functions return: used everywhere, so that no return value
//! is read twice differently.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::errno::Errno;
use crate::error::{Error, Result};

/// Sets `errno` to 0, so that a NULL with no reason can be told from one with a reason.
fn clear() {
    // SAFETY: the location belongs to the calling thread and is always valid.
    unsafe {
        *libc::__errno_location() = 0;
    }
}

/// The convention "NULL and errno": most verbs that create something.
pub(crate) fn non_null<T>(
    verb: &'static str,
    what: impl FnOnce() -> String,
    call: impl FnOnce() -> *mut T,
) -> Result<NonNull<T>> {
    clear();
    NonNull::new(call()).ok_or_else(|| Error::of_verb(verb, Errno::last(), what()))
}

/// The convention "0, or an error number": most verbs that change something. The sign is the
/// provider's choice.
pub(crate) fn zero_or_errno(
    verb: &'static str,
    what: impl FnOnce() -> String,
    returned: i32,
) -> Result<()> {
    match returned {
        0 => Ok(()),
        number => Err(Error::of_verb(verb, Errno::from_return(number), what())),
    }
}

/// The convention "not negative, or -1 and errno": system calls, and the verbs that come down to
/// one.
pub(crate) fn not_negative(
    verb: &'static str,
    what: impl FnOnce() -> String,
    returned: i32,
) -> Result<i32> {
    if returned < 0 {
        Err(Error::of_verb(verb, Errno::last(), what()))
    } else {
        Ok(returned)
    }
}
