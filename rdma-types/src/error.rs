//! The error type.

use std::borrow::Cow;
use std::{fmt, io};

use crate::errno::Errno;
use crate::kind::ErrorKind;

/// The result of a fallible function. The error type can be another one, for example
/// `Result<T, ConnectError>`.
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
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: the call that failed, its [kind](ErrorKind), its cause and, where one is known, a
/// remedy.
///
/// An error is one word wide, so that results on the data path stay small.
///
/// `Display` prints `call: detail: cause; help: remedy` on one line. `Debug`, which `main` uses for
/// the error that it returns, prints the remedy on a second line.
///
/// [`source`](std::error::Error::source) returns an [`io::Error`] if a system call failed.
/// `Display` already contains the description of the cause, so the text of the source is only its
/// number (`os error 13`), and a program that prints the whole chain repeats nothing. The number
/// itself is [`errno`](Self::errno).
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
pub struct Error(Box<Details>);

struct Details {
    kind: ErrorKind,
    call: &'static str,
    detail: Cow<'static, str>,
    cause: Option<Cause>,
    help: Option<Cow<'static, str>>,
    /// Kind of the [`io::Error`] that the error converts to, if `kind` is too coarse.
    io_kind: Option<io::ErrorKind>,
}

/// The error number of a failed call, also in the form that `source` returns.
struct Cause {
    errno: Errno,
    source: io::Error,
}

impl Cause {
    fn new(errno: Errno) -> Self {
        let kind = io::Error::from(errno).kind();
        Self {
            errno,
            source: io::Error::new(kind, OsError(errno)),
        }
    }
}

/// An error number without its description, which `Error` prints.
#[derive(Debug)]
struct OsError(Errno);

impl fmt::Display for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "os error {}", self.0.0)
    }
}

impl std::error::Error for OsError {}

impl Error {
    /// Creates an error that no system call reported, for example of an invalid argument. `detail`
    /// says what is wrong.
    pub fn new(kind: ErrorKind, call: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Details {
            kind,
            call,
            detail: detail.into(),
            cause: None,
            help: None,
            io_kind: None,
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
        error.0.cause = Some(Cause::new(errno));
        error
    }

    /// Replaces the kind, for callers that know it better than the error number tells.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Sets the kind of the [`io::Error`] that the error converts to, if it is finer than that of
    /// [`kind`](Self::kind).
    #[must_use]
    pub fn with_io_kind(mut self, kind: io::ErrorKind) -> Self {
        self.0.io_kind = Some(kind);
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
        self.0.cause.as_ref().map(|cause| cause.errno)
    }

    /// Returns the text without the remedy: `call: detail: cause`.
    pub fn message(&self) -> String {
        let Details {
            call,
            detail,
            cause,
            ..
        } = &*self.0;
        match cause {
            Some(Cause { errno, .. }) => format!("{call}: {detail}: {errno}"),
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
                .field("cause", &self.errno())
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
        self.0.cause.as_ref().map(|cause| &cause.source as _)
    }
}

/// Wraps the error in an [`io::Error`] of the nearest kind.
///
/// [`io::Error::raw_os_error`] returns `None` for it, because the text would be lost otherwise.
/// [`Error::errno`] of the wrapped error has the number.
///
/// # Example
/// ```
/// use rdma_types::{Errno, Error};
/// use std::io;
/// let wrapped = io::Error::from(Error::from_errno("rdma_bind_addr", Errno(98), "port 7471"));
/// assert_eq!(wrapped.kind(), io::ErrorKind::AddrInUse);
/// let inner = wrapped
///     .get_ref()
///     .and_then(|inner| inner.downcast_ref::<Error>());
/// assert_eq!(inner.and_then(Error::errno), Some(Errno(98)));
/// ```
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.io_kind(), error)
    }
}

impl Error {
    /// Returns the kind of the [`io::Error`] that the error converts to.
    pub fn io_kind(&self) -> io::ErrorKind {
        let kind = self.kind();
        if let Some(io_kind) = self.0.io_kind {
            return io_kind;
        }
        match (kind, self.errno()) {
            // The number tells more than these kinds.
            (ErrorKind::Os | ErrorKind::Disconnected, Some(errno)) => io::Error::from(errno).kind(),
            (ErrorKind::NotFound, Some(Errno(libc::EADDRNOTAVAIL))) => {
                io::ErrorKind::AddrNotAvailable
            }
            _ => kind.into(),
        }
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
    }

    /// Prints the chain of sources as `{:#}` of the crate `anyhow` does.
    fn chain(error: &dyn std::error::Error) -> String {
        match error.source() {
            Some(source) => format!("{error}: {}", chain(source)),
            None => error.to_string(),
        }
    }

    #[test]
    fn source_is_an_io_error_that_repeats_no_text() {
        let error = Error::from_errno("ibv_open_device", Errno(libc::EACCES), "rxe0")
            .with_help("check its mode");
        let source = error.source().expect("a cause");
        let source = source.downcast_ref::<io::Error>().expect("an io::Error");
        assert_eq!(source.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(
            chain(&error),
            "ibv_open_device: rxe0: Permission denied (EACCES); help: check its mode: os error 13"
        );
        let wrapped = io::Error::from(error);
        assert_eq!(chain(&wrapped).matches("denied").count(), 1);
        let error = Error::new(ErrorKind::TimedOut, "rdma_connect", "10.99.0.1");
        assert!(error.source().is_none(), "no system call failed");
    }

    #[test]
    fn io_kind_is_that_of_the_errno_or_nearest_to_the_kind() {
        use io::ErrorKind as Io;
        for (errno, kind) in [
            (libc::EPERM, Io::PermissionDenied),
            (libc::EACCES, Io::PermissionDenied),
            (libc::ETIMEDOUT, Io::TimedOut),
            (libc::ECONNREFUSED, Io::ConnectionRefused),
            (libc::ECONNRESET, Io::ConnectionReset),
            (libc::ENOTCONN, Io::NotConnected),
            (libc::ECONNABORTED, Io::ConnectionAborted),
            (libc::EAGAIN, Io::WouldBlock),
            (libc::ENOMEM, Io::OutOfMemory),
            (libc::EADDRINUSE, Io::AddrInUse),
            (libc::EADDRNOTAVAIL, Io::AddrNotAvailable),
            (libc::ENODEV, Io::NotFound),
            (libc::ENOENT, Io::NotFound),
            (libc::ENODATA, Io::NotFound),
            (libc::EOPNOTSUPP, Io::Unsupported),
            (libc::ENOSYS, Io::Unsupported),
            (libc::EPROTONOSUPPORT, Io::Unsupported),
            (libc::EINVAL, Io::InvalidInput),
            (libc::EFAULT, Io::InvalidInput),
            (libc::ENETDOWN, Io::NetworkDown),
            (libc::ENETUNREACH, Io::NetworkUnreachable),
            (libc::EHOSTUNREACH, Io::HostUnreachable),
            (libc::EBUSY, Io::ResourceBusy),
            (libc::EINTR, Io::Interrupted),
        ] {
            let error = Error::from_errno("call", Errno(errno), "object");
            assert_eq!(io::Error::from(error).kind(), kind, "{}", Errno(errno));
        }
        for (kind, io_kind) in [
            (ErrorKind::LockedMemory, Io::OutOfMemory),
            (ErrorKind::QueueFull, Io::WouldBlock),
            (ErrorKind::Busy, Io::ResourceBusy),
            (ErrorKind::LimitReached, Io::QuotaExceeded),
            (ErrorKind::WrongState, Io::NotConnected),
            (ErrorKind::Mismatch, Io::InvalidInput),
            (ErrorKind::Disconnected, Io::ConnectionReset),
            (ErrorKind::Malformed, Io::InvalidData),
            (ErrorKind::Refused, Io::Other),
            (ErrorKind::Completion, Io::Other),
        ] {
            assert_eq!(
                io::Error::from(Error::new(kind, "call", "detail")).kind(),
                io_kind
            );
        }
        let rejected = Error::new(ErrorKind::Disconnected, "rdma_connect", "rejected")
            .with_io_kind(Io::ConnectionRefused);
        assert_eq!(io::Error::from(rejected).kind(), Io::ConnectionRefused);
        let raw = io::Error::from(Errno(libc::EBADF));
        assert_eq!(raw.raw_os_error(), Some(libc::EBADF));
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
