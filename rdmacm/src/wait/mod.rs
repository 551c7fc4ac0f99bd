//! Waiting for a descriptor: with `poll(2)` until a deadline, or on tokio.

#![allow(unsafe_code)]

mod deadline;
#[cfg(feature = "tokio")]
mod tokio;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

use ibverbs::{Errno, Result};

pub(crate) use self::deadline::{Deadline, as_millis};
#[cfg(feature = "tokio")]
pub(crate) use self::tokio::Readable;
use crate::convert::failed;

/// A descriptor that is open as long as somebody has this.
pub(crate) type Descriptor = Arc<dyn AsFd + Send + Sync>;

/// Sleeps until there is something to read, or until the deadline; a signal ends it early.
pub(crate) fn sleep(fd: BorrowedFd<'_>, deadline: Deadline) -> Result<()> {
    sleep_any([fd], deadline)
}

/// Sleeps until one of several has something to read.
pub(crate) fn sleep_any<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    deadline: Deadline,
) -> Result<()> {
    let mut fds = fds.map(|fd| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let time = deadline.remaining().map(|left| libc::timespec {
        tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = libc::nfds_t::try_from(N).unwrap_or(0);
    // SAFETY: so many valid pollfds, a valid or null time, no signal mask.
    let returned = unsafe { libc::ppoll(fds.as_mut_ptr(), count, time, ptr::null()) };
    if returned >= 0 || Errno::last() == Errno(libc::EINTR) {
        return Ok(());
    }
    Err(failed("poll", Errno::last(), &"event channel"))
}
