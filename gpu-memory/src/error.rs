//! The error type: a message and a remedy.

use std::fmt;

/// A result of this crate.
///
/// # Example
/// ```no_run
/// fn largest_page() -> gpu_memory::Result<u64> {
///     Ok(gpu_memory::Gpu::cuda(0)?.alloc(1)?.len())
/// }
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a GPU or of its driver.
///
/// # Example
/// ```no_run
/// if let Err(error) = gpu_memory::Gpu::cuda(0) {
///     eprintln!("{error}");
///     if let Some(help) = error.help() {
///         eprintln!("help: {help}");
///     }
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
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

/// Writes the message and the remedy, for a `main` that returns the error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match self.help {
            Some(help) => write!(f, "\nhelp: {help}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_error_shows_its_message_and_remedy() {
        let error = Error::new("no GPU");
        assert_eq!(format!("{error:?}"), "no GPU");
        let error = error.with_help("load the driver");
        assert_eq!(format!("{error:?}"), "no GPU\nhelp: load the driver");
    }
}
