//! Waiting for a descriptor: with `poll(2)` until a deadline, or with tokio. Used by everything
//! that waits for events.

#![allow(unsafe_code)]

mod deadline;
#[cfg(feature = "tokio")]
mod tokio;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use ibverbs::{Errno, Result};

pub(crate) use self::deadline::LazyDeadline;
pub use self::deadline::{Deadline, as_millis};
#[cfg(feature = "tokio")]
pub use self::tokio::Readable;
use crate::convert::failed;

/// Shared ownership of an open descriptor.
pub type Descriptor = Arc<dyn AsFd + Send + Sync>;

/// Sleeps until the descriptor is readable, at most for `timeout` (forever if `None`), or until a
/// signal arrives.
pub(crate) fn sleep(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<()> {
    let mut pollfd = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: there is one entry, `timeout` is null or valid, and there is no signal mask.
    let returned = unsafe { libc::ppoll(&raw mut pollfd, 1, timeout, ptr::null()) };
    if returned >= 0 || Errno::last() == Errno(libc::EINTR) {
        return Ok(());
    }
    Err(failed("poll", Errno::last(), &"event channel"))
}
