//! The error type.

use std::borrow::Cow;
use std::{fmt, io};

use crate::errno::Errno;
use crate::kind::ErrorKind;

/// The result of a fallible function.
///
/// # Example
/// ```
/// use rdma_types::{Guid, Result};
/// fn sum(a: &str, b: &str) -> Result<u64> {
///     Ok(a.parse::<Guid>()?.0 + b.parse::<Guid>()?.0)
/// }
/// assert_eq!(sum("0x1", "0x2")?, 3);
/// # Ok::<(), rdma_types::Error>(())
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// An error: the call that failed, its [kind](ErrorKind), its cause and, where one is known, a
/// remedy.
///
/// An error is one word wide, so that results on the data path stay small.
///
/// `Display` prints `call: detail: cause; help: remedy` on one line. `Debug`, which `main` uses for
/// the error that it returns, prints the remedy on a second line.
///
/// # Example
/// ```
/// use rdma_types::{Errno, Error, ErrorKind};
/// let error = Error::from_errno("ibv_open_device", Errno(13), "rxe0")
///     .with_help("check the mode of /dev/infiniband/uverbs0");
/// assert_eq!(error.kind(), ErrorKind::PermissionDenied);
/// assert_eq!(error.message(), "ibv_open_device: rxe0: Permission denied (EACCES)");
/// assert_eq!(error.help(), Some("check the mode of /dev/infiniband/uverbs0"));
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    call: &'static str,
    detail: Cow<'static, str>,
    cause: Option<Errno>,
    help: Option<Cow<'static, str>>,
}

impl Error {
    /// Creates an error that no system call reported, for example of an invalid argument. `detail`
    /// says what is wrong.
    pub fn new(kind: ErrorKind, call: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            call,
            detail: detail.into(),
            cause: None,
            help: None,
        }))
    }

    /// Creates the error of a call that failed with `errno`, which also determines the kind.
    /// `detail` names the object that the call was applied to.
    pub fn from_errno(
        call: &'static str,
        errno: Errno,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        let mut error = Self::new(ErrorKind::from_errno(errno), call, detail);
        error.0.cause = Some(errno);
        error
    }

    /// Replaces the kind, for callers that know it better than the error number tells.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Sets the remedy.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<Cow<'static, str>>) -> Self {
        self.0.help = Some(help.into());
        self
    }

    /// Returns the class of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the name of the function that failed, as in its manual page, or of the failed step.
    pub fn call(&self) -> &'static str {
        self.0.call
    }

    /// Returns the object that the call was applied to; or what is wrong, if no system call failed.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Returns the cause, if a system call failed.
    pub fn errno(&self) -> Option<Errno> {
        self.0.cause
    }

    /// Returns the text without the remedy: `call: detail: cause`.
    pub fn message(&self) -> String {
        let Inner {
            call,
            detail,
            cause,
            ..
        } = &*self.0;
        match cause {
            Some(cause) => format!("{call}: {detail}: {cause}"),
            None => format!("{call}: {detail}"),
        }
    }

    /// Returns the remedy, if a usual one is known.
    pub fn help(&self) -> Option<&str> {
        self.0.help.as_deref()
    }

    /// Returns `true` if the device, the kernel or the library lacks the operation.
    pub fn is_unsupported(&self) -> bool {
        self.0.kind == ErrorKind::Unsupported
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())?;
        match self.help() {
            Some(help) => write!(f, "; help: {help}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        if f.alternate() {
            return f
                .debug_struct("Error")
                .field("kind", &inner.kind)
                .field("call", &inner.call)
                .field("detail", &inner.detail)
                .field("cause", &inner.cause)
                .field("help", &inner.help)
                .finish();
        }
        f.write_str(&self.message())?;
        match self.help() {
            Some(help) => write!(f, "\nhelp: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_ref().map(|cause| cause as _)
    }
}

/// Wraps the error in an [`io::Error`] of the nearest kind.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::InvalidInput | ErrorKind::Mismatch => io::ErrorKind::InvalidInput,
            ErrorKind::LockedMemory => io::ErrorKind::OutOfMemory,
            ErrorKind::QueueFull => io::ErrorKind::WouldBlock,
            ErrorKind::TimedOut => io::ErrorKind::TimedOut,
            ErrorKind::Disconnected => io::ErrorKind::NotConnected,
            ErrorKind::Malformed => io::ErrorKind::InvalidData,
            ErrorKind::PortDown => io::ErrorKind::NetworkDown,
            ErrorKind::Refused | ErrorKind::Completion | ErrorKind::Os => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn error_is_one_word_wide() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn help_follows_the_message() {
        let error = Error::from_errno("ibv_modify_qp", Errno(libc::ENODEV), "rxe0")
            .with_help("load rdma_rxe");
        let message = "ibv_modify_qp: rxe0: No such device (ENODEV)";
        assert_eq!(error.message(), message);
        assert_eq!(error.to_string(), format!("{message}; help: load rdma_rxe"));
        assert_eq!(
            format!("{error:?}"),
            format!("{message}\nhelp: load rdma_rxe")
        );
        let source = error.source().expect("a cause");
        assert_eq!(source.to_string(), "No such device (ENODEV)");
    }

    #[test]
    fn io_error_keeps_the_error_inside() {
        let error = io::Error::from(Error::new(
            ErrorKind::TimedOut,
            "rdma_connect",
            "10.99.0.1:7471",
        ));
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "rdma_connect: 10.99.0.1:7471");
        let inner = error.into_inner().expect("an inner error");
        let inner = inner.downcast::<Error>().expect("the original error");
        assert_eq!(inner.call(), "rdma_connect");
    }
}
