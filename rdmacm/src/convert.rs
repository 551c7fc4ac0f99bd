//! Conversion of C return values to errors, with one function per convention.

use std::fmt;

use ibverbs::{Errno, Error, ErrorKind, Result};
use rdma_types::convert;

use crate::help::{self, help_for};

/// Returns the error of a call that failed with `errno`, with a remedy if one is known.
pub fn failed(verb: &'static str, errno: Errno, detail: &dyn fmt::Display) -> Error {
    let error = ibverbs::call_failed(verb, errno, detail.to_string());
    match help_for(verb, errno) {
        Some(help) => error.with_help(help),
        None => error,
    }
}

/// Converts the convention "0, or -1 and `errno`" of librdmacm.
pub(crate) fn zero_or_last(
    verb: &'static str,
    detail: &dyn fmt::Display,
    returned: i32,
) -> Result<()> {
    convert::zero_or_last(returned).map_err(|errno| failed(verb, errno, detail))
}

/// Converts the convention "0, or an error number" of `ibv_modify_qp`. Some providers return a
/// negative number.
pub(crate) fn zero_or_errno(
    verb: &'static str,
    detail: &dyn fmt::Display,
    returned: i32,
) -> Result<()> {
    convert::zero_or_errno(returned).map_err(|errno| failed(verb, errno, detail))
}

/// Returns the error of an operation that was not completed in time.
pub(crate) fn timed_out(verb: &'static str, detail: &dyn fmt::Display) -> Error {
    Error::new(ErrorKind::TimedOut, verb, format!("{detail}: timed out")).with_help(help::NO_ANSWER)
}
