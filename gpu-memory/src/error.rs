//! The error type: a message and a remedy.

use std::fmt;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a GPU or of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    text: String,
    help: Option<&'static str>,
}

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            help: None,
        }
    }

    pub(crate) fn with_help(self, help: &'static str) -> Self {
        Self {
            help: Some(help),
            ..self
        }
    }

    /// Returns what to do about the error, if anything is known.
    pub fn help(&self) -> Option<&'static str> {
        self.help
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
