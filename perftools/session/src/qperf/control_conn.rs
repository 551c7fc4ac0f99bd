//! The control connection to a qperf peer: reads with a deadline, synchronization messages, and
//! errors sent as urgent data.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use base::peer_text::{one_line, printable};
use base::units::show_time;
use measure::engine::{Peer, Role};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::net::{RecvFlags, SendFlags};

use super::{SYNC_AFTER, SYNC_BEFORE};

/// Time to wait for the error text of the peer, or for the peer to close the connection. It is the
/// same as in qperf.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time to wait for the error of the peer after the data connection broke.
const EXPLAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum length of an error text in bytes. qperf has a buffer of 256 bytes, including a prefix of
/// its own.
const MAX_ERROR_TEXT: usize = 240;
/// Interval in milliseconds at which a wait checks the stop flag.
const STOP_CHECK_MILLIS: u16 = 100;

/// A control connection to a qperf peer.
#[derive(Debug)]
pub(crate) struct ControlConn {
    stream: TcpStream,
    role: Role,
    timeout: Duration,
    stop: Arc<AtomicBool>,
}

impl ControlConn {
    /// Wraps a connected stream of an end with this role. Setting `stop` ends all waits.
    pub(crate) fn new(
        stream: TcpStream,
        role: Role,
        timeout: Duration,
        stop: Arc<AtomicBool>,
    ) -> Result<Self> {
        let set_up = || {
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(timeout))
        };
        set_up()
            .map_err(|e| Error::system("cannot set the options of the control connection", &e))?;
        Ok(Self {
            stream,
            role,
            timeout,
            stop,
        })
    }

    /// Returns the underlying stream.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sets the time to wait for each message of the peer.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Sends all bytes.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<()> {
        (&self.stream)
            .write_all(bytes)
            .map_err(|e| self.explain(self.io_error(&e)))
    }

    /// Fills the buffer with received bytes. Error messages call them `what`.
    pub(crate) fn receive(&self, bytes: &mut [u8], what: &str) -> Result<()> {
        self.receive_until(bytes, what, Instant::now() + self.timeout)
    }

    fn receive_until(&self, mut bytes: &mut [u8], what: &str, deadline: Instant) -> Result<()> {
        while !bytes.is_empty() {
            if !self.wait_readable(deadline)? {
                return Err(Error::test(format!(
                    "cannot receive {what}: {} sent nothing for {}",
                    self.peer_name(),
                    show_time(self.timeout)
                ))
                .with_help("set --timeout (-to) higher"));
            }
            match (&self.stream).read(bytes) {
                Ok(0) => {
                    return Err(Error::new(
                        Kind::Gone,
                        format!(
                            "cannot receive {what}: {} closed the connection",
                            self.peer_name()
                        ),
                    ));
                }
                Ok(n) => bytes = &mut bytes[n..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.io_error(&e)),
            }
        }
        Ok(())
    }

    /// Waits until the stream is readable. Returns `false` if the deadline passed first.
    fn wait_readable(&self, deadline: Instant) -> Result<bool> {
        loop {
            let flags = self.poll_stream(STOP_CHECK_MILLIS)?;
            if flags.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR) {
                return Ok(true);
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(self.stopped_error());
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
        }
    }

    /// Polls the stream for at most `millis` milliseconds and handles urgent data.
    fn poll_stream(&self, millis: u16) -> Result<PollFlags> {
        let mut fds = [PollFd::new(
            self.stream.as_fd(),
            PollFlags::POLLIN | PollFlags::POLLPRI,
        )];
        match poll(&mut fds, PollTimeout::from(millis)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(Error::system("cannot wait for the peer", &errno.into())),
        }
        let flags = fds[0].revents().unwrap_or(PollFlags::empty());
        if flags.contains(PollFlags::POLLPRI) {
            self.receive_urgent()?;
        }
        Ok(flags & !PollFlags::POLLPRI)
    }

    /// Receives an urgent byte. `?` means that the peer failed, and an error text follows. All
    /// other bytes are ignored, for example `.`, which means that the peer has finished.
    fn receive_urgent(&self) -> Result<()> {
        // The bytes before the urgent mark are discarded, because the test has failed.
        let unread = rustix::io::ioctl_fionread(&self.stream).unwrap_or(0);
        let mut byte = [0];
        match rustix::net::recv(&self.stream, &mut byte, RecvFlags::OOB) {
            Ok(_) if byte[0] == b'?' => {}
            _ => return Ok(()),
        }
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let mut skipped = vec![0; usize::try_from(unread.min(4096)).unwrap_or(0)];
        let _ = self.read_until(&mut skipped, deadline);
        let mut text = [0; 256];
        let len = self.read_until(&mut text, deadline);
        let text = printable(String::from_utf8_lossy(&text[..len]).trim());
        Err(Error::new(
            Kind::Peer,
            format!("{}: {text}", self.peer_name()),
        ))
    }

    /// Reads until the buffer is full, the peer has closed the connection or the deadline has
    /// passed. Returns the number of bytes read.
    fn read_until(&self, bytes: &mut [u8], deadline: Instant) -> usize {
        let mut len = 0;
        while len < bytes.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stream.set_read_timeout(Some(left)).is_err() {
                break;
            }
            match (&self.stream).read(&mut bytes[len..]) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let _ = self.stream.set_read_timeout(None);
        len
    }

    /// Synchronizes with the peer before the test: both ends send the same message.
    pub(crate) fn synchronize_before(&self) -> Result<()> {
        self.send(SYNC_BEFORE)?;
        self.expect(SYNC_BEFORE, "the synchronization before the test")
    }

    /// Waits for the message that the client sends after it has received the statistics.
    pub(crate) fn expect_sync_after(&self) -> Result<()> {
        self.expect(SYNC_AFTER, "the synchronization after the test")
    }

    fn expect(&self, message: &[u8], what: &str) -> Result<()> {
        let mut received = vec![0; message.len()];
        self.receive(&mut received, what)?;
        if received == message {
            return Ok(());
        }
        Err(Error::protocol(format!(
            "{} sent other bytes instead of {what}",
            self.peer_name()
        )))
    }

    /// Receives a number.
    pub(crate) fn receive_u32(&self, what: &str) -> Result<u32> {
        let mut bytes = [0; 4];
        self.receive(&mut bytes, what)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Sends an error to the peer as qperf does. Errors of the peer itself are not sent.
    pub(crate) fn send_error(&self, error: &Error) {
        if matches!(error.kind(), Kind::Peer | Kind::Gone) {
            return;
        }
        let mut text = one_line(&error.to_string());
        while text.len() > MAX_ERROR_TEXT {
            text.pop();
        }
        // qperf prints only the text that has arrived when its signal handler runs, so the text
        // must follow the urgent byte immediately.
        let sent = rustix::net::send(&self.stream, b"?", SendFlags::OOB).is_ok()
            && (&self.stream).write_all(text.as_bytes()).is_ok()
            && self.stream.shutdown(Shutdown::Write).is_ok();
        if sent {
            // Closing the connection now could reset it before the peer has read the text.
            self.wait_closed();
        }
    }

    /// Discards received bytes until the peer closes the connection, at most for
    /// `CLOSE_TIMEOUT`.
    pub(crate) fn wait_closed(&self) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while self.read_until(&mut [0; 256], deadline) == 256 {}
    }

    fn io_error(&self, error: &std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Error::new(
                Kind::Gone,
                format!("{} closed the connection", self.peer_name()),
            ),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::new(
                Kind::Gone,
                format!("{} does not read from the connection", self.peer_name()),
            ),
            _ => Error::system("the control connection broke", error),
        }
    }

    /// Returns `true` if the peer has closed the connection, according to the result of a poll.
    fn is_closed(&self, flags: PollFlags) -> bool {
        // Readable bytes are statistics or a synchronization message that arrived early.
        flags.intersects(PollFlags::POLLHUP | PollFlags::POLLERR)
            || (flags.contains(PollFlags::POLLIN) && matches!(self.stream.peek(&mut [0]), Ok(0)))
    }

    /// Returns `true` if the peer is gone or failed, or this end was stopped.
    pub(crate) fn is_gone(&self) -> bool {
        self.failure().is_some()
    }
}

impl ControlConn {
    fn peer_name(&self) -> String {
        format!("{} (qperf)", self.role.peer_name())
    }

    fn stopped_error(&self) -> Error {
        let stopped = match self.role {
            Role::Client => "the test was interrupted",
            Role::Server => "the server was stopped in the middle of the test",
        };
        Error::new(Kind::System, stopped)
    }
}

/// During a test, qperf sends nothing except an error.
impl Peer for ControlConn {
    fn finish(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn finished(&self) -> Option<u64> {
        None
    }

    fn failure(&self) -> Option<Error> {
        if self.stop.load(Ordering::Relaxed) {
            return Some(self.stopped_error());
        }
        match self.poll_stream(0) {
            Err(error) => Some(error),
            Ok(flags) if self.is_closed(flags) => Some(Error::new(
                Kind::Gone,
                format!(
                    "{} closed the connection in the middle of the test",
                    self.peer_name()
                ),
            )),
            Ok(_) => None,
        }
    }

    fn explain(&self, error: Error) -> Error {
        let end = Instant::now() + EXPLAIN_TIMEOUT;
        while Instant::now() < end {
            if let Some(failure) = self.failure() {
                return if failure.kind() == Kind::Peer {
                    failure
                } else {
                    error
                };
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        error
    }
}
