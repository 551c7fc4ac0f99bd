//! The one error type of the tools: a sentence for the user and the exit status that goes with it.

use std::fmt;
use std::io::{self, Write as _};

/// A result whose error is a sentence for the user.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure it was; decides the exit status and what the server logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The command line asks for something that makes no sense.
    Usage,
    /// A limit of this program, of the device or of the server does not allow it.
    Limit,
    /// The device, its port or the library refused.
    Device,
    /// The network or the operating system refused.
    System,
    /// What came from the peer is not what the protocol says.
    Protocol,
    /// The peer reported an error; the text is the peer's.
    Peer,
    /// The peer went away in the middle.
    Gone,
    /// The test ran and failed: a message was lost, damaged or late.
    Test,
}

/// An error: what was tried, on what, why it failed and what to do, in one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    text: String,
    help: Option<String>,
}

impl Error {
    /// An error of `kind` with this text.
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            help: None,
        }
    }

    /// Adds the remedy, which `Display` prints after the cause: `cause; help: remedy`.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Returns the remedy, if there is one.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// The command line makes no sense.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(Kind::Usage, text)
    }

    /// A limit does not allow it.
    pub fn limit(text: impl Into<String>) -> Self {
        Self::new(Kind::Limit, text)
    }

    /// The device or its library refused.
    pub fn device(text: impl Into<String>) -> Self {
        Self::new(Kind::Device, text)
    }

    /// The peer does not speak the protocol.
    pub fn protocol(text: impl Into<String>) -> Self {
        Self::new(Kind::Protocol, text)
    }

    /// The test itself failed.
    pub fn test(text: impl Into<String>) -> Self {
        Self::new(Kind::Test, text)
    }

    /// A system call failed while `what` was done.
    pub fn system(what: impl fmt::Display, source: &io::Error) -> Self {
        Self::new(Kind::System, format!("{what}: {source}"))
    }

    /// The same error with what was being done in front.
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.text = format!("{what}: {}", self.text);
        self
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The exit status of a program that ends with this error: 2 for a wrong command line, else 1.
    pub fn exit_status(&self) -> u8 {
        if self.kind == Kind::Usage { 2 } else { 1 }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.help {
            Some(help) => write!(f, "; help: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

// `ibumad::Error` is the same type as `ibverbs::Error`.

impl From<ibverbs::Error> for Error {
    fn from(error: ibverbs::Error) -> Self {
        Self::device(error.to_string())
    }
}

impl<P> From<ibverbs::Rejected<P>> for Error {
    fn from(rejected: ibverbs::Rejected<P>) -> Self {
        ibverbs::Error::from(rejected).into()
    }
}

impl From<rdmacm::ConnectError> for Error {
    fn from(error: rdmacm::ConnectError) -> Self {
        ibverbs::Error::from(error).into()
    }
}

/// Writes a line to standard error, as far as anybody reads it: a server outlives the terminal that
/// it was started from.
pub fn tell(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}
