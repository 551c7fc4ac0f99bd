//! The control connection to a qperf: bytes with a deadline, synchronizations, and errors by urgent
//! data.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::net::{RecvFlags, SendFlags};

use super::{AFTER, BEFORE};
use crate::common::error::{Error, Kind, Result};
use crate::common::units::show_time;
use crate::rperf::engine::Peer;

/// How long the words of a failed peer, or its end after this end's, are waited for: as long as
/// qperf does.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// How long a broken data connection waits for the peer's words.
const EXPLANATION: Duration = Duration::from_millis(500);
/// The longest error text: qperf has a buffer of 256 bytes, with its own prefix.
const MAX_TEXT: usize = 240;
/// How often a wait looks whether this end shall stop.
const LOOK_EVERY: u16 = 100;

/// A conversation with a qperf.
#[derive(Debug)]
pub struct ControlConn {
    stream: TcpStream,
    who: &'static str,
    timeout: Duration,
    stop: Arc<AtomicBool>,
}

impl ControlConn {
    /// A conversation; `who` is the peer in errors, `stop` ends it from this end.
    ///
    /// # Errors
    /// The system refuses to set the connection up.
    pub fn new(
        stream: TcpStream,
        who: &'static str,
        timeout: Duration,
        stop: Arc<AtomicBool>,
    ) -> Result<Self> {
        let set_up = || {
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(timeout))
        };
        set_up().map_err(|e| Error::system("cannot set the control connection up", &e))?;
        Ok(Self {
            stream,
            who,
            timeout,
            stop,
        })
    }

    /// The connection.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sets how long a silent peer is waited for.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The connection broke; if the peer said why, that.
    pub fn send(&self, bytes: &[u8]) -> Result<()> {
        (&self.stream)
            .write_all(bytes)
            .map_err(|e| self.explain(self.broken(&e)))
    }

    /// Receives as many bytes.
    ///
    /// # Errors
    /// The peer's error, its end, or its silence for the timeout.
    pub fn receive(&self, bytes: &mut [u8], what: &str) -> Result<()> {
        self.receive_until(bytes, what, Instant::now() + self.timeout)
    }

    fn receive_until(&self, mut bytes: &mut [u8], what: &str, deadline: Instant) -> Result<()> {
        while !bytes.is_empty() {
            if !self.is_readable(deadline)? {
                let silence = format!(
                    "{} said nothing for {}: {what} is missing",
                    self.who,
                    show_time(self.timeout)
                );
                return Err(Error::test(
                    silence + "; --timeout (-to) sets how long to wait",
                ));
            }
            match (&self.stream).read(bytes) {
                Ok(0) => {
                    return Err(Error::new(
                        Kind::Gone,
                        format!("{} closed the connection: {what} is missing", self.who),
                    ));
                }
                Ok(n) => bytes = &mut bytes[n..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.broken(&e)),
            }
        }
        Ok(())
    }

    /// Waits until there is something to read; false when the deadline passed.
    fn is_readable(&self, deadline: Instant) -> Result<bool> {
        loop {
            let flags = self.look(LOOK_EVERY)?;
            if flags.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR) {
                return Ok(true);
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
        }
    }

    /// What there is to read, after at most so many milliseconds.
    fn look(&self, millis: u16) -> Result<PollFlags> {
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
            self.urgent()?;
        }
        Ok(flags & !PollFlags::POLLPRI)
    }

    /// Takes an urgent byte. `?` means that the peer failed; its text follows. Anything else (`.`:
    /// "I am through") is no matter.
    fn urgent(&self) -> Result<()> {
        // What stands before the mark is of no interest to who has failed.
        let before = rustix::io::ioctl_fionread(&self.stream).unwrap_or(0);
        let mut byte = [0];
        match rustix::net::recv(&self.stream, &mut byte, RecvFlags::OOB) {
            Ok(_) if byte[0] == b'?' => {}
            _ => return Ok(()),
        }
        let deadline = Instant::now() + LAST_WORDS;
        let mut skipped = vec![0; usize::try_from(before.min(4096)).unwrap_or(0)];
        let _ = self.read_for(&mut skipped, deadline);
        let mut text = [0; 256];
        let len = self.read_for(&mut text, deadline);
        let text: String = String::from_utf8_lossy(&text[..len])
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        Err(Error::new(
            Kind::Peer,
            format!("{}: {}", self.who, text.trim()),
        ))
    }

    /// Reads until the buffer is full, the peer has closed or the deadline has passed.
    fn read_for(&self, bytes: &mut [u8], deadline: Instant) -> usize {
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

    /// Both say that they are ready; the test begins.
    ///
    /// # Errors
    /// The peer failed, or said something else.
    pub fn before(&self) -> Result<()> {
        self.send(BEFORE)?;
        self.expect(BEFORE, "the synchronization before the test")
    }

    /// The client has the figures and has left its loop.
    ///
    /// # Errors
    /// The peer failed, or said something else.
    pub fn expect_after(&self) -> Result<()> {
        self.expect(AFTER, "the synchronization after the test")
    }

    fn expect(&self, words: &[u8], what: &str) -> Result<()> {
        let mut said = vec![0; words.len()];
        self.receive(&mut said, what)?;
        if said == words {
            return Ok(());
        }
        Err(Error::protocol(format!(
            "{} does not say {what} as qperf does",
            self.who
        )))
    }

    /// A number.
    ///
    /// # Errors
    /// As [`ControlConn::receive`].
    pub fn receive_u32(&self, what: &str) -> Result<u32> {
        let mut bytes = [0; 4];
        self.receive(&mut bytes, what)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Tells the peer why this end gives up, as qperf does, unless the peer is what failed.
    pub fn report(&self, error: &Error) {
        if matches!(error.kind(), Kind::Peer | Kind::Gone) {
            return;
        }
        let mut text: String = error
            .to_string()
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        while text.len() > MAX_TEXT {
            text.pop();
        }
        // qperf prints only what is there when the signal reaches it, so nothing may come between
        // the two.
        let told = rustix::net::send(&self.stream, b"?", SendFlags::OOB).is_ok()
            && (&self.stream).write_all(text.as_bytes()).is_ok()
            && self.stream.shutdown(Shutdown::Write).is_ok();
        if told {
            // So that the text is not lost to a reset: the peer reads it, then closes.
            let deadline = Instant::now() + LAST_WORDS;
            while self.read_for(&mut [0; 256], deadline) == 256 {}
        }
    }

    /// Waits for the peer's end.
    pub fn wait_closed(&self) {
        let deadline = Instant::now() + LAST_WORDS;
        while self.read_for(&mut [0; 256], deadline) == 256 {}
    }

    fn broken(&self, error: &std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                Error::new(Kind::Gone, format!("{} closed the connection", self.who))
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::new(
                Kind::Gone,
                format!("{} does not read what it is sent", self.who),
            ),
            _ => Error::system("the control connection broke", error),
        }
    }

    /// Whether there is nobody to talk to any more.
    pub fn is_gone(&self) -> bool {
        self.failure().is_some()
    }
}

fn stopped() -> Error {
    Error::new(
        Kind::System,
        "the server was stopped in the middle of the test",
    )
}

/// While a test runs, qperf says nothing but that it failed.
impl Peer for ControlConn {
    fn finish(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn finished(&self) -> Option<u64> {
        None
    }

    fn failure(&self) -> Option<Error> {
        if self.stop.load(Ordering::Relaxed) {
            return Some(stopped());
        }
        match self.look(0) {
            Err(error) => Some(error),
            Ok(flags) if flags.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) => {
                Some(Error::new(
                    Kind::Gone,
                    format!(
                        "{} closed the connection in the middle of the test",
                        self.who
                    ),
                ))
            }
            // Readable without bytes: closed. With bytes: figures, or a synchronization, that came
            // early.
            Ok(flags)
                if flags.contains(PollFlags::POLLIN)
                    && matches!(self.stream.peek(&mut [0]), Ok(0)) =>
            {
                Some(Error::new(
                    Kind::Gone,
                    format!(
                        "{} closed the connection in the middle of the test",
                        self.who
                    ),
                ))
            }
            Ok(_) => None,
        }
    }

    fn explain(&self, error: Error) -> Error {
        let end = Instant::now() + EXPLANATION;
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
