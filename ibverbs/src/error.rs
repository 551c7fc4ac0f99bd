//! What can go wrong, in words: what was tried, on what, why it failed, what to do.

use std::borrow::Cow;
use std::{fmt, io};

use crate::errno::Errno;
use crate::kind::ErrorKind;

/// The result of everything that can fail in this crate.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, Device};
/// fn one_buffer(device: &str) -> ibverbs::Result<Buf> {
///     Device::by_name(device)?.open()?.alloc_pd()?.buf(4096)
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a verb: one word wide, so that results stay small on the data path.
///
/// `Display` prints one line: the verb, what it was applied to, the system's reason, and a remedy
/// for the usual causes.
///
/// # Example
/// ```no_run
/// use ibverbs::{Device, ErrorKind};
/// match Device::by_name("rxe9") {
///     Err(error) if error.kind() == ErrorKind::NotFound => println!("{error}"), // says which devices there are
///     other => drop(other?),
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    verb: &'static str,
    errno: Option<Errno>,
    what: Cow<'static, str>,
    hint: Option<Cow<'static, str>>,
}

impl Error {
    /// An error of a call that failed with `errno`; kind and remedy follow from both.
    ///
    /// For this crate and those built on it; a user reads errors rather than making them.
    pub fn of_verb(verb: &'static str, errno: Errno, what: impl Into<Cow<'static, str>>) -> Self {
        let what = what.into();
        crate::trace::failed(verb, errno, &what);
        Self(Box::new(Inner {
            kind: ErrorKind::of(verb, errno),
            verb,
            errno: Some(errno),
            what,
            hint: crate::hint::hint_for(verb, errno),
        }))
    }

    /// An error that no system call reported: a check of this crate, or of one built on it.
    pub fn new(kind: ErrorKind, verb: &'static str, what: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            verb,
            errno: None,
            what: what.into(),
            hint: None,
        }))
    }

    /// The same error as one of another class, where it is known better than the number says.
    pub(crate) fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// The same error with this remedy.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// The broad class of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The verb (or step) that failed, as its man page is called.
    pub fn verb(&self) -> &'static str {
        self.0.verb
    }

    /// What the system returned, where a system call failed.
    pub fn errno(&self) -> Option<Errno> {
        self.0.errno
    }

    /// What the verb was applied to.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// What to do about it, where the cause is a usual one.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Whether the device or library simply lacks the operation.
    pub fn is_unsupported(&self) -> bool {
        self.0.kind == ErrorKind::Unsupported
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            verb,
            errno,
            what,
            hint,
            ..
        } = &*self.0;
        write!(f, "{verb}: {what}")?;
        if let Some(errno) = errno {
            write!(f, ": {errno}")?;
        }
        if let Some(hint) = hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    /// The line for people, as a `main` that returns the error prints it; the fields with `{:#?}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        let Inner {
            kind,
            verb,
            errno,
            what,
            hint,
        } = &*self.0;
        f.debug_struct("Error")
            .field("kind", kind)
            .field("verb", verb)
            .field("errno", errno)
            .field("what", what)
            .field("hint", hint)
            .finish()
    }
}

impl std::error::Error for Error {}

/// For programs whose errors are those of input and output: of the nearest kind, with this one
/// inside.
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
            ErrorKind::PortDown => io::ErrorKind::NetworkDown,
            ErrorKind::Completion | ErrorKind::Os => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_word() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn as_an_error_of_input_and_output_it_keeps_its_text() {
        let error = io::Error::from(Error::new(
            ErrorKind::TimedOut,
            "rdma_connect",
            "10.99.0.1:7471",
        ));
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::TimedOut, "rdma_connect: 10.99.0.1:7471")
        );
        let inner = error.into_inner().expect("what it was made of");
        assert_eq!(
            inner.downcast::<Error>().expect("itself").verb(),
            "rdma_connect"
        );
    }

    #[test]
    fn text_says_what_why_and_remedy() {
        let error =
            Error::of_verb("ibv_modify_qp", Errno(libc::ENODEV), "rxe0").with_hint("load rdma_rxe");
        assert_eq!(
            error.to_string(),
            "ibv_modify_qp: rxe0: No such device (ENODEV) (load rdma_rxe)"
        );
    }
}
