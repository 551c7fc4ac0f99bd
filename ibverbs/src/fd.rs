//! Non-blocking file descriptors, and waiting until one is readable.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::{Duration, Instant};

use crate::convert::not_negative;
use crate::error::{Errno, Result};

/// Makes reads of the descriptor return immediately if there is no data.
pub(crate) fn set_non_blocking(fd: BorrowedFd<'_>, what: &str) -> Result<()> {
    // SAFETY: fcntl on a descriptor that the borrow keeps open; F_GETFL takes no pointer.
    let flags = not_negative("fcntl", || what.into(), unsafe {
        libc::fcntl(fd.as_raw_fd(), libc::F_GETFL)
    })?;
    // SAFETY: as above; F_SETFL takes no pointer.
    let returned = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) };
    not_negative("fcntl", || what.into(), returned)?;
    Ok(())
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
    let mut fd = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: one valid pollfd, a valid or null timeout, and no signal mask.
    let returned = unsafe { libc::ppoll(&raw mut fd, 1, timeout, ptr::null()) };
    match not_negative("poll", || what.into(), returned) {
        Err(error) if error.errno() != Some(Errno(libc::EINTR)) => Err(error),
        _ => Ok(()),
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
