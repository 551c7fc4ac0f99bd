//! What can go wrong, in words: what was tried, on what, why it failed, what to do.

use std::borrow::Cow;
use std::fmt;

use crate::errno::Errno;
use crate::kind::ErrorKind;

/// The result of everything that can fail in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error: one word wide.
///
/// `Display` prints one line: the call, what it was applied to, the system's reason, and a remedy
/// for the usual causes.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    call: &'static str,
    errno: Option<Errno>,
    what: Cow<'static, str>,
    hint: Option<Cow<'static, str>>,
}

impl Error {
    /// An error of a call of libibumad; kind and remedy follow from its name and `errno`.
    pub(crate) fn of_call(
        call: &'static str,
        errno: Errno,
        what: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self(Box::new(Inner {
            kind: ErrorKind::of(errno),
            call,
            errno: Some(errno),
            what: what.into(),
            hint: crate::hint::hint_for(call, errno).map(Cow::Borrowed),
        }))
    }

    /// An error that no system call reported.
    pub(crate) fn new(
        kind: ErrorKind,
        call: &'static str,
        what: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self(Box::new(Inner {
            kind,
            call,
            errno: None,
            what: what.into(),
            hint: None,
        }))
    }

    /// The same error with this remedy.
    pub(crate) fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// The broad class of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The call (or step) that failed, as its man page is called.
    pub fn call(&self) -> &'static str {
        self.0.call
    }

    /// What the system returned, where a system call failed.
    pub fn errno(&self) -> Option<Errno> {
        self.0.errno
    }

    /// What the call was applied to.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// What to do about it, where the cause is a usual one.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            call,
            errno,
            what,
            hint,
            ..
        } = &*self.0;
        write!(f, "{call}: {what}")?;
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
            call,
            errno,
            what,
            hint,
        } = &*self.0;
        f.debug_struct("Error")
            .field("kind", kind)
            .field("call", call)
            .field("errno", errno)
            .field("what", what)
            .field("hint", hint)
            .finish()
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_word() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn text_says_what_why_and_remedy() {
        let error = Error::of_call("umad_open_port", Errno(libc::ENODEV), "mlx4_0 port 1");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(
            error.to_string(),
            "umad_open_port: mlx4_0 port 1: No such device (ENODEV) (no such port: ribinfo devices lists those there are)"
        );
    }
}
