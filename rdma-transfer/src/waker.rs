//! Waiting for descriptors, and waking a thread that waits.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ibverbs::{Error, Result, call_failed};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Wakes a thread that waits in [`wait_readable`].
#[derive(Clone, Debug)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(crate) fn new() -> Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| from_rustix("eventfd", errno))?;
        Ok(Self(Arc::new(fd)))
    }

    pub(crate) fn wake(&self) {
        // Fails only if the counter is full. The thread is awake then.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the next wait sleep again.
    pub(crate) fn clear(&self) {
        // Fails if nothing has woken the thread.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of the descriptors is readable. Returns `true` if it is one of the first
/// `urgent`.
pub(crate) fn wait_readable(
    fds: &[BorrowedFd<'_>],
    urgent: usize,
    timeout: Duration,
) -> Result<bool> {
    let fds = fds.iter();
    let mut fds: Vec<_> = fds
        .map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    // A time limit beyond what the kernel can count is none.
    let timeout = Timespec::try_from(timeout).ok();
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) => Ok(fds.iter().take(urgent).any(|fd| !fd.revents().is_empty())),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(from_rustix("poll", errno)),
    }
}

fn from_rustix(call: &'static str, errno: rustix::io::Errno) -> Error {
    call_failed(call, ibverbs::Errno(errno.raw_os_error()), "")
}
