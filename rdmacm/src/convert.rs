//! From the conventions of C's functions to errors with a remedy: one converter for each.

use std::fmt;

use ibverbs::{Errno, Error, ErrorKind, Result};

use crate::hint::{self, hint_for};

/// The error of a call that failed with `errno`.
pub(crate) fn failed(verb: &'static str, errno: Errno, what: &dyn fmt::Display) -> Error {
    let error = Error::of_verb(verb, errno, what.to_string());
    match hint_for(verb, errno) {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// The convention "0, or -1 and errno": all functions of librdmacm.
pub(crate) fn zero_or_last(
    verb: &'static str,
    what: &dyn fmt::Display,
    returned: i32,
) -> Result<()> {
    if returned == 0 {
        Ok(())
    } else {
        Err(failed(verb, Errno::last(), what))
    }
}

/// The convention "0, or an error number" of either sign: `ibv_modify_qp`.
pub(crate) fn zero_or_errno(
    verb: &'static str,
    what: &dyn fmt::Display,
    returned: i32,
) -> Result<()> {
    if returned == 0 {
        Ok(())
    } else {
        Err(failed(verb, Errno(returned.wrapping_abs()), what))
    }
}

/// Nothing happened in time.
pub(crate) fn timed_out(verb: &'static str, what: &dyn fmt::Display) -> Error {
    Error::new(
        ErrorKind::TimedOut,
        verb,
        format!("{what}: no answer in the time given"),
    )
    .with_hint(hint::NO_ANSWER)
}
