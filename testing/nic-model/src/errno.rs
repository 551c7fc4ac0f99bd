//! Error numbers of the kernel.

/// An error number, such as `EINVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const EINVAL: Self = Self(libc::EINVAL);
    pub(crate) const EPERM: Self = Self(libc::EPERM);
    pub(crate) const EACCES: Self = Self(libc::EACCES);
    pub(crate) const EADDRINUSE: Self = Self(libc::EADDRINUSE);
    pub(crate) const EADDRNOTAVAIL: Self = Self(libc::EADDRNOTAVAIL);
    pub(crate) const EAGAIN: Self = Self(libc::EAGAIN);
    pub(crate) const EISCONN: Self = Self(libc::EISCONN);
    pub(crate) const ENODEV: Self = Self(libc::ENODEV);
    pub(crate) const ENOSYS: Self = Self(libc::ENOSYS);
    pub(crate) const ENOMEM: Self = Self(libc::ENOMEM);
    pub(crate) const EFAULT: Self = Self(libc::EFAULT);
    pub(crate) const EBUSY: Self = Self(libc::EBUSY);
    pub(crate) const ENOENT: Self = Self(libc::ENOENT);
    pub(crate) const EBADF: Self = Self(libc::EBADF);
    pub(crate) const EMFILE: Self = Self(libc::EMFILE);
    pub(crate) const ENOLINK: Self = Self(libc::ENOLINK);
    pub(crate) const ENODATA: Self = Self(libc::ENODATA);
    pub(crate) const ENOSPC: Self = Self(libc::ENOSPC);
    pub(crate) const EOPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    pub(crate) const EREMOTEIO: Self = Self(libc::EREMOTEIO);
    pub(crate) const EPROTONOSUPPORT: Self = Self(libc::EPROTONOSUPPORT);

    /// Returns the error of the last system call.
    pub(crate) fn last() -> Self {
        Self(
            std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        )
    }
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

pub(crate) type Result<T> = std::result::Result<T, Errno>;
