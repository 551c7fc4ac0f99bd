//! Conversions of this crate's errors to [`io::Error`], for functions that return `io::Result`.
//!
//! The crate `rdma-types` converts [`Error`] itself.

use std::io;

use crate::error::Error;
use crate::in_flight::ForeignCompletion;
use crate::mr::{ReclaimError, ReregError};
use crate::wr::{BatchError, PostError, Rejected};

/// Wraps the error in an [`io::Error`] of the nearest kind.
impl From<PostError> for io::Error {
    fn from(error: PostError) -> Self {
        let kind = match error.errno() {
            Some(errno) => Self::from(errno).kind(),
            None => error.kind().into(),
        };
        Self::new(kind, error)
    }
}

/// Wraps the [`Error`]. The payload is dropped, so a buffer returns to its pool.
impl<P> From<Rejected<P>> for io::Error {
    fn from(rejected: Rejected<P>) -> Self {
        Error::from(rejected).into()
    }
}

/// Wraps the [`Error`]. The buffers return to their pools.
impl From<BatchError> for io::Error {
    fn from(error: BatchError) -> Self {
        Error::from(error).into()
    }
}

/// Wraps the [`Error`].
impl From<ForeignCompletion> for io::Error {
    fn from(foreign: ForeignCompletion) -> Self {
        Error::from(foreign).into()
    }
}

/// Wraps the [`Error`]. The region is dropped.
impl From<ReclaimError> for io::Error {
    fn from(failed: ReclaimError) -> Self {
        Error::from(failed).into()
    }
}

/// Wraps the [`Error`]. The region is dropped.
impl From<ReregError> for io::Error {
    fn from(failed: ReregError) -> Self {
        Error::from(failed).into()
    }
}
