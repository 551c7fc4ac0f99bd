//! Non-blocking file descriptors, and waiting until one is readable.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::error::{Errno, Result, call_failed};

/// Makes reads of the descriptor return immediately if there is no data.
pub(crate) fn set_non_blocking(fd: BorrowedFd<'_>, what: &str) -> Result<()> {
    fcntl_getfl(fd)
        .and_then(|flags| fcntl_setfl(fd, flags | OFlags::NONBLOCK))
        .map_err(|errno| call_failed("fcntl", Errno(errno.raw_os_error()), what.to_owned()))
}

/// Calls `take` until it returns a value, and waits in between until the descriptor is readable.
///
/// Returns `None` after `timeout`; waits without limit if `timeout` is `None`.
pub(crate) fn wait_readable<T>(
    fd: BorrowedFd<'_>,
    what: &str,
    timeout: Option<Duration>,
    mut take: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        if let Some(taken) = take()? {
            return Ok(Some(taken));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(None);
        }
        poll(
            fd,
            what,
            deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())),
        )?;
    }
}

/// Waits until the descriptor is readable, a signal arrives or the timeout expires.
fn poll(fd: BorrowedFd<'_>, what: &str, timeout: Option<Duration>) -> Result<()> {
    // A time limit beyond what the kernel can count is none.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(call_failed(
            "poll",
            Errno(errno.raw_os_error()),
            what.to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn take(pipe: &mut UnixStream) -> Option<u8> {
        let mut byte = [0];
        pipe.read(&mut byte)
            .ok()
            .filter(|&count| count == 1)
            .map(|_| byte[0])
    }

    #[test]
    #[cfg_attr(miri, ignore = "uses sockets and ppoll")]
    fn waiting_ends_with_data_or_timeout() {
        let (mut reader, mut writer) = UnixStream::pair().expect("pair");
        set_non_blocking(reader.as_fd(), "pipe").expect("non-blocking");
        let other = reader.try_clone().expect("dup");
        let start = Instant::now();
        let got = wait_readable(
            other.as_fd(),
            "pipe",
            Some(Duration::from_millis(30)),
            || Ok(take(&mut reader)),
        )
        .expect("wait");
        assert_eq!(got, None);
        assert!(start.elapsed() >= Duration::from_millis(30));
        writer.write_all(&[7, 8]).expect("write");
        for byte in [7, 8] {
            assert_eq!(
                wait_readable(other.as_fd(), "pipe", None, || Ok(take(&mut reader))).expect("wait"),
                Some(byte)
            );
        }
        assert_eq!(
            wait_readable(other.as_fd(), "pipe", Some(Duration::ZERO), || Ok(take(
                &mut reader
            )))
            .expect("try"),
            None
        );
    }
}
