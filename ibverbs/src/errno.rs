//! `errno` as a value.

use std::fmt;

/// An error number of the system: an integer, so that any number is a value.
///
/// # Example
/// ```
/// use ibverbs::Errno;
/// let errno = Errno(12);
/// assert_eq!(errno.name(), Some("ENOMEM"));
/// assert_eq!(errno.to_string(), "Cannot allocate memory (ENOMEM)");
/// ```
///
/// # References
/// [`errno(3)`](https://man7.org/linux/man-pages/man3/errno.3.html)
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub i32);

impl Errno {
    /// What the calling thread's last failing C call left in `errno`.
    pub fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// The number that a function returned, whichever sign the provider gave it (siw returns
    /// negative ones).
    pub(crate) const fn from_return(value: i32) -> Self {
        Self(value.wrapping_abs())
    }

    /// The symbolic name, for the numbers that verbs return.
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            libc::EPERM => "EPERM",
            libc::ENOENT => "ENOENT",
            libc::EINTR => "EINTR",
            libc::EIO => "EIO",
            libc::ENXIO => "ENXIO",
            libc::EAGAIN => "EAGAIN",
            libc::ENOMEM => "ENOMEM",
            libc::EACCES => "EACCES",
            libc::EFAULT => "EFAULT",
            libc::EBUSY => "EBUSY",
            libc::ENODEV => "ENODEV",
            libc::EINVAL => "EINVAL",
            libc::EMFILE => "EMFILE",
            libc::ENOSPC => "ENOSPC",
            libc::ENOSYS => "ENOSYS",
            libc::ENODATA => "ENODATA",
            libc::EPROTO => "EPROTO",
            libc::EOPNOTSUPP => "EOPNOTSUPP",
            libc::EADDRINUSE => "EADDRINUSE",
            libc::EADDRNOTAVAIL => "EADDRNOTAVAIL",
            libc::ENETDOWN => "ENETDOWN",
            libc::ENETUNREACH => "ENETUNREACH",
            libc::ECONNREFUSED => "ECONNREFUSED",
            libc::ECONNRESET => "ECONNRESET",
            libc::ENOTCONN => "ENOTCONN",
            libc::ETIMEDOUT => "ETIMEDOUT",
            libc::EHOSTUNREACH => "EHOSTUNREACH",
            _ => return None,
        })
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

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "Errno({}: {name})", self.0),
            None => write!(f, "Errno({})", self.0),
        }
    }
}
