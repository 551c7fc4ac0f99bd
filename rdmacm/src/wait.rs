//! Sleeping until a descriptor is readable.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

use ibverbs::{Errno, Result};

use crate::convert::failed;
use crate::deadline::Deadline;

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
    let time = deadline.left().map(|left| libc::timespec {
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
