//! The error type of the tools: a message for the user, a remedy and the exit status.

use std::fmt;
use std::io;

use crate::advice::Advice;

/// A `Result` with the error type of the tools.
pub type Result<T> = std::result::Result<T, Error>;

/// The category of an error. It decides the exit status and what a server logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The command line is invalid.
    Usage,
    /// A limit of this program, the device or the server was exceeded.
    Limit,
    /// The device, its port or its library returned an error.
    Device,
    /// The device failed as a whole. No error of the peer explains this one.
    DeviceFailure,
    /// The operating system or the network returned an error.
    System,
    /// The peer violated the protocol.
    Protocol,
    /// The peer reported an error. The message is the peer's.
    Peer,
    /// The peer closed the connection or stopped reading from it.
    Gone,
    /// The test failed: a message was lost, corrupted or late.
    Test,
    /// A test was measured, and its result is outside the limits of the user.
    Exceeded,
    /// A signal ended the program.
    Interrupted {
        /// Number of the signal.
        signal: u8,
    },
}

/// An error message in the form `what was tried: what went wrong`, with an optional remedy.
///
/// It has the size of a pointer, so that functions of the timed loops return a `Result` in
/// registers.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Advice<Kind>>);

impl Error {
    /// Creates an error of `kind`.
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self(Box::new(Advice::new(kind, text)))
    }

    /// Adds a remedy. `Display` prints it after the message: `message; help: remedy`.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.0.help = Some(help.into());
        self
    }

    /// Returns the message without the remedy.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns the remedy, if any.
    pub fn help(&self) -> Option<&str> {
        self.0.help.as_deref()
    }

    /// Creates an error of [`Kind::Usage`].
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(Kind::Usage, text)
    }

    /// Creates an error of [`Kind::Limit`].
    pub fn limit(text: impl Into<String>) -> Self {
        Self::new(Kind::Limit, text)
    }

    /// Creates an error of [`Kind::Device`].
    pub fn device(text: impl Into<String>) -> Self {
        Self::new(Kind::Device, text)
    }

    /// Creates an error of [`Kind::Protocol`].
    pub fn protocol(text: impl Into<String>) -> Self {
        Self::new(Kind::Protocol, text)
    }

    /// Creates an error of [`Kind::Test`].
    pub fn test(text: impl Into<String>) -> Self {
        Self::new(Kind::Test, text)
    }

    /// Creates an error of [`Kind::System`] for a system call that failed during `operation`.
    pub fn system(operation: impl fmt::Display, source: &io::Error) -> Self {
        Self::new(Kind::System, format!("{operation}: {source}"))
    }

    /// Prefixes the message with the operation that failed: `operation: message`.
    #[must_use]
    pub fn context(self, operation: impl fmt::Display) -> Self {
        Self(Box::new(self.0.context(operation)))
    }

    /// Returns the category of the error.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Returns the exit status of the program: 2 for an invalid command line, 3 for a result
    /// outside the limits of the user, 128 plus the number of a signal, otherwise 1.
    pub fn exit_status(&self) -> u8 {
        match self.0.kind {
            Kind::Usage => 2,
            Kind::Exceeded => 3,
            Kind::Interrupted { signal } => 128_u8.saturating_add(signal),
            _ => 1,
        }
    }

    /// Changes the category to [`Kind::Limit`], for a resource of this host that is exhausted.
    #[must_use]
    pub fn into_limit(self) -> Self {
        self.with_kind(Kind::Limit)
    }

    /// Changes the category to [`Kind::Usage`], for a value from the command line that is out of
    /// range.
    #[must_use]
    pub fn into_usage(self) -> Self {
        self.with_kind(Kind::Usage)
    }

    fn with_kind(mut self, kind: Kind) -> Self {
        self.0.kind = kind;
        self
    }
}

/// Returns the message and the remedy of an error of another host, which is text already.
pub fn split_help(text: &str) -> (&str, Option<&str>) {
    match text.split_once("; help: ") {
        Some((message, help)) => (message, Some(help)),
        None => (text, None),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Writes the message and the remedy, for a `main` that returns the error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

// `ibumad::Error` is the same type as `ibverbs::Error`.

impl From<ibverbs::Error> for Error {
    #[cold]
    fn from(error: ibverbs::Error) -> Self {
        let own = Self::device(error.message());
        match error.help() {
            Some(help) => own.with_help(help),
            None => own,
        }
    }
}

impl<P> From<ibverbs::Rejected<P>> for Error {
    #[cold]
    fn from(rejected: ibverbs::Rejected<P>) -> Self {
        ibverbs::Error::from(rejected).into()
    }
}

impl From<rdmacm::ConnectError> for Error {
    fn from(error: rdmacm::ConnectError) -> Self {
        ibverbs::Error::from(error).into()
    }
}
