//! Classes of errors.

use std::io;

use crate::errno::Errno;

/// The class of an [`Error`](crate::Error), for programs that react to errors rather than print
/// them.
///
/// # Example
/// ```
/// use rdma_types::{Errno, Error, ErrorKind};
/// let error = Error::from_errno("ibv_create_cq", Errno(95), "rxe0"); // EOPNOTSUPP
/// match error.kind() {
///     ErrorKind::Unsupported => println!("continuing without it: {error}"),
///     _ => panic!("{error}"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A device, port, GID or address does not exist.
    NotFound,
    /// The caller lacks a right: access to a device node, a capability, a protection domain.
    PermissionDenied,
    /// The device, its driver, the kernel or the library does not have this operation.
    Unsupported,
    /// An argument is invalid, always or on this device.
    InvalidInput,
    /// Memory could not be registered, usually because of the locked-memory limit.
    LockedMemory,
    /// The queue holds its maximum number of requests, or no buffer is free. A later completion
    /// makes room.
    QueueFull,
    /// Requests or other objects use the object. It can be changed when they have ended.
    Busy,
    /// A limit of the object or of the process is reached. Waiting does not help.
    LimitReached,
    /// Objects of different devices or protection domains were combined.
    Mismatch,
    /// No event or answer arrived within the time limit.
    TimedOut,
    /// The peer rejected the connection or closed it.
    Disconnected,
    /// The peer answered a management request with an error status.
    Refused,
    /// The received data does not conform to the specification.
    Malformed,
    /// The port is in a state that does not allow this.
    PortDown,
    /// The queue pair is in a state that does not allow this, for example because it is not
    /// connected yet.
    WrongState,
    /// A work request completed with an error status.
    Completion,
    /// Any other error that the system reported.
    Os,
}

/// The kernel's internal "not supported". It reaches user space from `rdma_join_multicast` for IPv6
/// groups on RoCE v2, and libc does not define it.
const ENOTSUPP: i32 = 524;

impl ErrorKind {
    /// Returns the class of a system error.
    pub fn from_errno(errno: Errno) -> Self {
        match errno.0 {
            libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::EPROTONOSUPPORT | ENOTSUPP => {
                Self::Unsupported
            }
            libc::EPERM | libc::EACCES => Self::PermissionDenied,
            libc::ENODEV | libc::ENOENT | libc::ENODATA | libc::ENXIO | libc::EADDRNOTAVAIL => {
                Self::NotFound
            }
            libc::EINVAL | libc::EFAULT => Self::InvalidInput,
            libc::EBUSY => Self::Busy,
            libc::ETIMEDOUT => Self::TimedOut,
            libc::ENETDOWN => Self::PortDown,
            libc::ECONNREFUSED | libc::ECONNRESET | libc::ENOTCONN => Self::Disconnected,
            _ => Self::Os,
        }
    }
}

/// Returns the nearest kind of the standard library.
impl From<ErrorKind> for io::ErrorKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::PermissionDenied => Self::PermissionDenied,
            ErrorKind::Unsupported => Self::Unsupported,
            ErrorKind::InvalidInput | ErrorKind::Mismatch => Self::InvalidInput,
            ErrorKind::LockedMemory => Self::OutOfMemory,
            ErrorKind::QueueFull => Self::WouldBlock,
            ErrorKind::Busy => Self::ResourceBusy,
            ErrorKind::LimitReached => Self::QuotaExceeded,
            ErrorKind::TimedOut => Self::TimedOut,
            ErrorKind::Disconnected => Self::ConnectionReset,
            ErrorKind::WrongState => Self::NotConnected,
            ErrorKind::Malformed => Self::InvalidData,
            ErrorKind::PortDown => Self::NetworkDown,
            ErrorKind::Refused | ErrorKind::Completion | ErrorKind::Os => Self::Other,
        }
    }
}
