//! The broad classes of errors.

use crate::errno::Errno;

/// The broad class of an [`Error`](crate::Error), for a program that wants to react rather than
/// print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A device or port that does not exist, or has no management device.
    NotFound,
    /// The caller may not do this.
    PermissionDenied,
    /// The kernel or the library does not have this.
    Unsupported,
    /// An argument that can never work.
    InvalidInput,
    /// No answer within the time given.
    TimedOut,
    /// The peer answered with an error status.
    Refused,
    /// What came is not what the specification says.
    Malformed,
    /// Anything else that the system reported.
    Os,
}

impl ErrorKind {
    /// The class of error that `errno` stands for.
    pub(crate) fn of(errno: Errno) -> Self {
        match errno.0 {
            libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => Self::Unsupported,
            libc::EPERM | libc::EACCES => Self::PermissionDenied,
            libc::ENODEV | libc::ENOENT | libc::ENXIO => Self::NotFound,
            libc::EINVAL | libc::EFAULT => Self::InvalidInput,
            libc::ETIMEDOUT => Self::TimedOut,
            _ => Self::Os,
        }
    }
}
