//! Waiting for descriptors, and waking a thread that waits.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ibverbs::{Error, Result, call_failed};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// Wakes a thread that waits in [`wait_readable`].
#[derive(Clone, Debug)]
pub(crate) struct Waker(Arc<EventFd>);

#[derive(Debug)]
struct EventFd {
    fd: OwnedFd,
    /// The thread was woken, and has not noticed it. It needs no other system call until then.
    is_set: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| from_rustix("eventfd", errno))?;
        let is_set = AtomicBool::new(false);
        Ok(Self(Arc::new(EventFd { fd, is_set })))
    }

    pub(crate) fn wake(&self) {
        if !self.0.is_set.swap(true, Ordering::AcqRel) {
            // Fails only if the counter is full. The thread is awake then.
            let _ = rustix::io::write(&self.0.fd, &1_u64.to_ne_bytes());
        }
    }

    /// Makes the next wait sleep again. Called when the descriptor is readable, and before the
    /// thread looks for the reason.
    pub(crate) fn clear(&self) {
        // Fails if nothing has woken the thread.
        let _ = rustix::io::read(&self.0.fd, &mut [0; 8]);
        // After the descriptor: another order would leave it set without a readable descriptor.
        self.0.is_set.swap(false, Ordering::AcqRel);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

/// Waits until one of the descriptors is readable. Returns which ones are.
pub(crate) fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Duration) -> Vec<bool> {
    let fds = fds.iter();
    let mut fds: Vec<_> = fds
        .map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    // A time limit beyond what the kernel can count is none.
    let timeout = Timespec::try_from(timeout).ok();
    // Without the wait, the loop of the caller polls.
    let has_failed = matches!(poll(&mut fds, timeout.as_ref()), Err(errno) if errno != Errno::INTR);
    let is_readable = |fd: &PollFd<'_>| has_failed || !fd.revents().is_empty();
    fds.iter().map(is_readable).collect()
}

fn from_rustix(call: &'static str, errno: Errno) -> Error {
    call_failed(call, ibverbs::Errno(errno.raw_os_error()), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wake_after_the_wait_was_cleared_ends_a_wait() {
        let waker = Waker::new().expect("a descriptor");
        let is_woken = || wait_readable(&[waker.as_fd()], Duration::ZERO)[0];
        for _ in 0..3 {
            assert!(!is_woken());
            waker.wake();
            waker.wake();
            assert!(is_woken());
            waker.clear();
        }
    }
}
