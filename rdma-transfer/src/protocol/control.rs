//! The control connection: messages between two engines beside the adapters.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use crate::protocol::message::MAX_LEN;
use crate::protocol::protection::{Protection, Token};

/// Maximum number of bytes that one call of `receive` reads. It limits the time for which a peer
/// that sends without pause occupies the thread of the control connections.
const MAX_READ: usize = 64 << 10;

/// Maximum number of bytes that wait for a peer to read them: the keys of 65,536 regions after a
/// device was opened again.
const MAX_QUEUED: usize = 8 << 20;

/// A reliable connection to the peer's engine that delivers messages whole and in order. It must
/// not depend on the adapters of the transfers.
///
/// [`StreamControl`] makes one from a stream. Other implementations can send the messages over a
/// connection that the program has already.
///
/// # Example
/// ```
/// use rdma_transfer::Control;
/// use std::io;
/// use std::sync::mpsc::{Receiver, Sender, TryRecvError};
///
/// /// Engines of one process.
/// struct Channel(Sender<Vec<u8>>, Receiver<Vec<u8>>);
///
/// impl Control for Channel {
///     fn send(&mut self, message: Vec<u8>) -> io::Result<()> {
///         self.0.send(message).map_err(io::Error::other)
///     }
///
///     fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
///         match self.1.try_recv() {
///             Ok(message) => Ok(Some(message)),
///             Err(TryRecvError::Empty) => Ok(None),
///             Err(error) => Err(io::Error::other(error)),
///         }
///     }
/// }
/// ```
pub trait Control: Send {
    /// Sends a message, or queues it. Does not wait.
    ///
    /// # Errors
    /// The connection is lost, or the peer does not read and its queue is full. The engine then
    /// disconnects the peer.
    fn send(&mut self, message: Vec<u8>) -> io::Result<()>;

    /// Returns the next message, or `None` if none has arrived. Does not wait. Also continues to
    /// send what is queued.
    ///
    /// # Errors
    /// The connection is lost, or the peer has closed it.
    fn receive(&mut self) -> io::Result<Option<Vec<u8>>>;

    /// Returns a descriptor that is readable when a message arrives. Without one, the engine asks
    /// every 10 ms. Default: `None`.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A control connection over a stream, usually TCP.
///
/// A peer whose host has failed is noticed when the stream ends. TCP notices it sooner with
/// keepalives, which the program can set on the stream. The connection is also lost if 8 MiB of
/// messages wait for the peer to read them, or if the peer sends a message of more than 512 KiB.
///
/// # Example
/// ```no_run
/// # fn f(engine: &rdma_transfer::Engine) -> Result<(), Box<dyn std::error::Error>> {
/// use rdma_transfer::{StreamControl, Token};
/// use std::net::TcpStream;
/// let token = Token::new(&std::fs::read("/etc/engine.token")?)?;
/// let stream = TcpStream::connect("10.0.0.2:7600")?;
/// let peer = engine.connect(StreamControl::initiator(stream, &token)?)?;
/// # Ok(()) }
/// ```
pub struct StreamControl<S> {
    stream: S,
    protection: Option<Protection>,
    incoming: VecDeque<u8>,
    outgoing: VecDeque<u8>,
    has_ended: bool,
}

impl<S: Read + Write + AsFd + Send> StreamControl<S> {
    /// Takes a connected stream, which must carry nothing else, and makes it non-blocking. Messages
    /// are neither authenticated nor encrypted, so the program or the stream must do it.
    ///
    /// # Errors
    /// The stream cannot be made non-blocking.
    pub fn new(stream: S) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&stream, true)?;
        Ok(Self {
            stream,
            protection: None,
            incoming: VecDeque::new(),
            outgoing: VecDeque::new(),
            has_ended: false,
        })
    }

    /// Like [`new`](Self::new), with a session of the Noise protocol that this side initiates. The
    /// other side must be the [responder](Self::responder). No message is sent to a peer that does
    /// not have the token, and the connection is lost.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn initiator(stream: S, token: &Token) -> io::Result<Self> {
        Self::protected(stream, token, true)
    }

    /// Like [`initiator`](Self::initiator), for the other side.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn responder(stream: S, token: &Token) -> io::Result<Self> {
        Self::protected(stream, token, false)
    }

    fn protected(stream: S, token: &Token, initiates: bool) -> io::Result<Self> {
        let mut control = Self::new(stream)?;
        let protection = Protection::new(token, initiates, &mut control.outgoing)?;
        control.protection = Some(protection);
        Ok(control)
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.stream.write(self.outgoing.as_slices().0) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) if is_temporary(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut chunk = [0; 4096];
        for _ in 0..MAX_READ / chunk.len() {
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    self.has_ended = true;
                    break;
                }
                Ok(count) => self.add_received(&chunk[..count])?,
                Err(error) if is_temporary(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn add_received(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(protection) = &mut self.protection else {
            self.incoming.extend(bytes);
            return Ok(());
        };
        let opened = protection.open(bytes, &mut self.incoming, &mut self.outgoing);
        self.flush()?;
        opened
    }

    /// Removes a whole message from the front of what has arrived.
    fn take(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut len = [0; 4];
        if self.incoming.len() < len.len() {
            return Ok(None);
        }
        len.iter_mut()
            .zip(&self.incoming)
            .for_each(|(into, byte)| *into = *byte);
        let len = u32::from_le_bytes(len) as usize;
        if len > MAX_LEN {
            let what = format!("a control message of {len} bytes; at most {MAX_LEN} are allowed");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        if self.incoming.len() < 4 + len {
            return Ok(None);
        }
        self.incoming.drain(..4);
        Ok(Some(self.incoming.drain(..len).collect()))
    }
}

impl<S: Read + Write + AsFd + Send> Control for StreamControl<S> {
    fn send(&mut self, message: Vec<u8>) -> io::Result<()> {
        let protection = self.protection.as_ref();
        let queued = protection.map_or(0, |protection| protection.queued.len());
        if self.outgoing.len() + queued + 4 + message.len() > MAX_QUEUED {
            let what = format!("the peer has not read {MAX_QUEUED} bytes of control messages");
            return Err(io::Error::other(what));
        }
        let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
        for part in [&len.to_le_bytes(), message.as_slice()] {
            match &mut self.protection {
                Some(protection) => protection.seal(part, &mut self.outgoing)?,
                None => self.outgoing.extend(part),
            }
        }
        self.flush()
    }

    fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        if let Some(message) = self.take()? {
            return Ok(Some(message));
        }
        self.flush()?;
        self.fill()?;
        match self.take()? {
            None if self.has_ended => Err(io::ErrorKind::UnexpectedEof.into()),
            message => Ok(message),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stream.as_fd())
    }
}

impl<S> fmt::Debug for StreamControl<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamControl")
            .field("incoming", &self.incoming.len())
            .field("outgoing", &self.outgoing.len())
            .finish_non_exhaustive()
    }
}

fn is_temporary(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn messages_arrive_whole_and_the_end_after_them() {
        let (a, b) = UnixStream::pair().expect("sockets");
        let mut a = StreamControl::new(a).expect("non-blocking");
        let mut b = StreamControl::new(b).expect("non-blocking");
        assert_eq!(b.receive().expect("open"), None);
        // More than the socket takes at once.
        let long = vec![7; MAX_LEN];
        a.send(long.clone()).expect("queued");
        a.send(vec![1]).expect("queued");
        let mut next = || loop {
            assert_eq!(a.receive().expect("open"), None);
            if let Some(message) = b.receive().expect("open") {
                break message;
            }
        };
        assert_eq!(next(), long);
        assert_eq!(next(), [1]);
        a.send(vec![2]).expect("sent");
        drop(a);
        assert_eq!(b.receive().expect("open"), Some(vec![2]));
        let error = b.receive().expect_err("closed");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    /// The time for one message does not depend on the number of those behind it.
    #[test]
    fn a_backlog_is_read_in_parts() {
        const COUNT: usize = 1 << 16;
        let (a, b) = UnixStream::pair().expect("sockets");
        let mut a = StreamControl::new(a).expect("non-blocking");
        let mut b = StreamControl::new(b).expect("non-blocking");
        for _ in 0..COUNT {
            a.send(vec![7; 12]).expect("queued");
        }
        let mut count = 0;
        while count < COUNT {
            assert_eq!(a.receive().expect("open"), None);
            count += usize::from(b.receive().expect("open").is_some());
            assert!(b.incoming.len() < MAX_READ + 16);
        }
        assert!(b.incoming.is_empty());
    }

    #[test]
    fn the_queue_to_a_peer_that_does_not_read_is_limited() {
        let (a, _b) = UnixStream::pair().expect("sockets");
        let mut a = StreamControl::new(a).expect("non-blocking");
        let mut sent = 0;
        while a.send(vec![7; MAX_LEN]).is_ok() {
            sent += MAX_LEN;
            assert!(sent < 2 * MAX_QUEUED);
        }
        assert!(sent > MAX_QUEUED - 2 * MAX_LEN && a.outgoing.capacity() <= 2 * MAX_QUEUED);
    }

    #[test]
    fn a_message_that_is_too_long_is_refused() {
        let (mut a, b) = UnixStream::pair().expect("sockets");
        let mut b = StreamControl::new(b).expect("non-blocking");
        a.write_all(&[0xff; 4]).expect("sent");
        let error = b.receive().expect_err("4 GiB");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
