//! Differences between the library and the model.

use std::fmt;

use ibverbs::Error;

/// A difference between the library and the model.
#[derive(Debug)]
pub struct Violation(pub(crate) String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

impl From<Error> for Violation {
    fn from(error: Error) -> Self {
        Self(format!("unexpected error: {error}"))
    }
}

/// Returns a violation for an error that the model does not expect.
pub(crate) fn unexpected(what: &str, error: impl Into<Error>) -> Violation {
    Violation(format!("{what}: {}", error.into()))
}
