//! Error numbers of the system.

use std::fmt;

/// An error number of the system. It is an integer, so that numbers unknown to this crate are
/// values too.
///
/// # Example
/// ```
/// use rdma_types::Errno;
/// let errno = Errno(12);
/// assert_eq!(errno.name(), Some("ENOMEM"));
/// assert_eq!(errno.to_string(), "Cannot allocate memory (ENOMEM)");
/// ```
#[doc(alias = "errno")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub i32);

/// Maps a number to the name of the libc constant with that value.
macro_rules! name_of {
    ($number:expr, $($name:ident)*) => {
        match $number {
            $(libc::$name => Some(stringify!($name)),)*
            _ => None,
        }
    };
}

impl Errno {
    /// Returns the calling thread's `errno`, as the last failed C call set it.
    pub fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// Converts an error number that a function returned. Providers disagree on the sign (siw
    /// returns negative numbers), so both signs are accepted.
    #[inline]
    pub const fn from_return(value: i32) -> Self {
        Self(value.wrapping_abs())
    }

    /// Returns the symbolic name, for the numbers that the RDMA libraries return.
    pub fn name(self) -> Option<&'static str> {
        name_of!(
            self.0,
            EPERM ENOENT EINTR EIO ENXIO EAGAIN ENOMEM EACCES EFAULT EBUSY ENODEV EINVAL EMFILE
            ENOSPC ENOSYS ENODATA ENOLINK EPROTO EOPNOTSUPP EADDRINUSE EADDRNOTAVAIL ENETDOWN
            ENETUNREACH ECONNREFUSED ECONNRESET ENOTCONN ETIMEDOUT EHOSTUNREACH
        )
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("failed without a reason (errno 0)");
        }
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        match self.name() {
            Some(name) => write!(f, "{text} ({name})"),
            None => write!(f, "{text} (errno {})", self.0),
        }
    }
}

/// Writes the message, for a `main` that returns the error.
impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Errno {}

/// Returns the error of the system with this number, as `std` does for its own calls.
impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}
