//! Conversion of C return values to errors, with one function per convention.

use std::fmt;

use ibverbs::{Errno, Error, ErrorKind, Result};
use rdma_types::convert;

use crate::hint::{self, hint_for};

/// Returns the error of a call that failed with `errno`, with a remedy if one is known.
pub(crate) fn failed(verb: &'static str, errno: Errno, what: &dyn fmt::Display) -> Error {
    let error = ibverbs::call_failed(verb, errno, what.to_string());
    match hint_for(verb, errno) {
        Some(hint) => error.with_help(hint),
        None => error,
    }
}

/// Converts the convention "0, or -1 and `errno`" of librdmacm.
pub(crate) fn zero_or_last(
    verb: &'static str,
    what: &dyn fmt::Display,
    returned: i32,
) -> Result<()> {
    convert::zero_or_last(returned).map_err(|errno| failed(verb, errno, what))
}

/// Converts the convention "0, or an error number" of `ibv_modify_qp`. Some providers return a
/// negative number.
pub(crate) fn zero_or_errno(
    verb: &'static str,
    what: &dyn fmt::Display,
    returned: i32,
) -> Result<()> {
    convert::zero_or_errno(returned).map_err(|errno| failed(verb, errno, what))
}

/// Returns the error of an operation that was not completed in time.
pub(crate) fn timed_out(verb: &'static str, what: &dyn fmt::Display) -> Error {
    Error::new(ErrorKind::TimedOut, verb, format!("{what}: timed out")).with_help(hint::NO_ANSWER)
}
