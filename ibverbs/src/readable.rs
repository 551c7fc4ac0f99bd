//! Waiting until a file descriptor has something to read, and not being kept by one that has
//! nothing.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::{Duration, Instant};

use crate::convert::not_negative;
use crate::errno::Errno;
use crate::error::Result;

/// Makes reads of the descriptor return at once where there is nothing to read.
pub(crate) fn set_non_blocking(fd: BorrowedFd<'_>, what: &str) -> Result<()> {
    // SAFETY: plain system calls on a descriptor that the borrow keeps open.
    let flags = not_negative("fcntl", || what.into(), unsafe {
        libc::fcntl(fd.as_raw_fd(), libc::F_GETFL)
    })?;
    // SAFETY: as above.
    let returned = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) };
    not_negative("fcntl", || what.into(), returned)?;
    Ok(())
}

/// Tries until there is something, sleeping in between, at most for `timeout` (for ever when
/// `None`).
pub(crate) fn wait<T>(
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
        sleep(
            fd,
            what,
            deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())),
        )?;
    }
}

/// Sleeps until the descriptor can be read; a signal, or the end of the time, ends the sleep too.
fn sleep(fd: BorrowedFd<'_>, what: &str, timeout: Option<Duration>) -> Result<()> {
    let mut fd = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let time = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: one valid pollfd, a valid or null time, no signal mask.
    let returned = unsafe { libc::ppoll(&raw mut fd, 1, time, ptr::null()) };
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
    #[cfg_attr(miri, ignore = "sockets and ppoll")]
    fn waiting_ends_with_something_or_with_the_time() {
        let (mut reader, mut writer) = UnixStream::pair().expect("pair");
        set_non_blocking(reader.as_fd(), "pipe").expect("non-blocking");
        let other = reader.try_clone().expect("dup");
        let begun = Instant::now();
        let got = wait(
            other.as_fd(),
            "pipe",
            Some(Duration::from_millis(30)),
            || Ok(take(&mut reader)),
        )
        .expect("wait");
        assert_eq!(got, None);
        assert!(begun.elapsed() >= Duration::from_millis(30));
        writer.write_all(&[7, 8]).expect("write");
        for byte in [7, 8] {
            assert_eq!(
                wait(other.as_fd(), "pipe", None, || Ok(take(&mut reader))).expect("wait"),
                Some(byte)
            );
        }
        assert_eq!(
            wait(other.as_fd(), "pipe", Some(Duration::ZERO), || Ok(take(
                &mut reader
            )))
            .expect("try"),
            None
        );
    }
}
