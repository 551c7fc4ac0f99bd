//! The broad classes of errors.

use crate::errno::Errno;

/// The broad class of an [`Error`](crate::Error), for a program that wants to react rather than
/// print.
///
/// # Example
/// A program that goes on without what the device lacks:
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// use ibverbs::{CqOptions, ErrorKind, cq_ex::CqFields};
/// match context.create_cq_ex(CqOptions::default(), CqFields::new().timestamp()) {
///     Ok(cq) => println!("{cq:?} takes the time"),
///     Err(error) if error.kind() == ErrorKind::Unsupported => println!("no timestamps: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A device, port, GID or address that does not exist.
    NotFound,
    /// The caller may not do this (device node rights, capability, protection domain).
    PermissionDenied,
    /// The device, its driver or the library does not have this operation.
    Unsupported,
    /// An argument that can never work, or not on this device.
    InvalidInput,
    /// Memory could not be registered, usually for the locked-memory limit.
    LockedMemory,
    /// The queue holds as many requests as it can.
    QueueFull,
    /// Objects of different devices or protection domains were put together.
    Mismatch,
    /// Nothing happened within the time given.
    TimedOut,
    /// The peer refused or went away.
    Disconnected,
    /// The port is not in a state in which this works.
    PortDown,
    /// A work request completed with an error status.
    Completion,
    /// Anything else that the system reported.
    Os,
}

/// The kernel's own "not supported", which it should not let out and does (`rdma_join_multicast` of
/// IPv6 groups on RoCE v2); not in libc.
const ENOTSUPP: i32 = 524;

impl ErrorKind {
    /// The class of error that `verb` reports by `errno`.
    pub(crate) fn of(verb: &str, errno: Errno) -> Self {
        match (verb, errno.0) {
            ("ibv_reg_mr", libc::ENOMEM | libc::EAGAIN) => ErrorKind::LockedMemory,
            (_, libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT | ENOTSUPP) => {
                ErrorKind::Unsupported
            }
            (_, libc::EPERM | libc::EACCES) => ErrorKind::PermissionDenied,
            (
                _,
                libc::ENODEV | libc::ENOENT | libc::ENODATA | libc::ENXIO | libc::EADDRNOTAVAIL,
            ) => ErrorKind::NotFound,
            (_, libc::EINVAL | libc::EFAULT) => ErrorKind::InvalidInput,
            (_, libc::ETIMEDOUT) => ErrorKind::TimedOut,
            (_, libc::ENETDOWN) => ErrorKind::PortDown,
            (_, libc::ECONNREFUSED | libc::ECONNRESET | libc::ENOTCONN) => ErrorKind::Disconnected,
            _ => ErrorKind::Os,
        }
    }
}
