//! Waiting for a descriptor: with `poll(2)` until a deadline, or with tokio. Used by everything
//! that waits for events.

mod deadline;
#[cfg(feature = "tokio")]
mod tokio;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ibverbs::{Errno, Result};
use rustix::event::{PollFd, PollFlags, Timespec};

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
    // A time limit beyond what the kernel can count is none.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(failed(
            "poll",
            Errno(errno.raw_os_error()),
            &"event channel",
        )),
    }
}
