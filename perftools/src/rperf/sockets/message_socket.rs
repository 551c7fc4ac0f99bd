//! A connected socket that carries messages.
//!
//! Calls are bounded in time: a blocking socket returns after [`NAP`], a polled one at once. So the
//! loops see the clock and the peer's words without a thread more.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, UdpSocket};
use std::time::Duration;

use socket2::Socket;

use super::SocketKind;
use crate::common::error::{Error, Kind as Failure, Result};

/// The longest that a call sleeps.
pub const NAP: Duration = Duration::from_millis(20);
/// Bytes that one call hands to SCTP at most: it refuses messages longer than its buffer.
const SCTP_PIECE: usize = 64 << 10;

/// What a receive brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A message of so many bytes.
    Message(usize),
    /// Nothing yet, or a part.
    Nothing,
    /// The peer will send no more.
    End,
}

/// A connected socket. A message that is sent or received in parts is continued by the next call.
#[derive(Debug)]
pub struct MessageSocket {
    socket: Socket,
    kind: SocketKind,
    sent: usize,
    received: usize,
    /// A place of datagrams that is not joined with a peer yet: the first who sends is the peer.
    open: bool,
}

impl MessageSocket {
    /// A line over a connected socket; `poll`: calls return at once.
    ///
    /// # Errors
    /// The system refuses to set the socket up.
    pub fn new(socket: Socket, kind: SocketKind, poll: bool) -> Result<Self> {
        let open = kind.is_datagram() && socket.peer_addr().is_err();
        let set_up = || {
            socket.set_nonblocking(poll)?;
            socket.set_read_timeout(Some(NAP))?;
            socket.set_write_timeout(Some(NAP))
        };
        set_up()
            .map_err(|e| Error::system(format!("cannot set the {} socket up", kind.name()), &e))?;
        Ok(Self {
            socket,
            kind,
            sent: 0,
            received: 0,
            open,
        })
    }

    /// What carries it.
    pub fn kind(&self) -> SocketKind {
        self.kind
    }

    /// The socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Whether a message is under way in parts.
    pub fn is_in_parts(&self) -> bool {
        self.sent > 0
    }

    /// Sends a message, or goes on with it; true when all of it is in the socket.
    ///
    /// # Errors
    /// The connection broke, or the message is too large.
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Result<bool> {
        let piece = match self.kind {
            // Pieces of one size: a small last one would wait for the acknowledgement of the
            // others.
            SocketKind::Sctp => {
                let piece = message
                    .len()
                    .div_ceil(message.len().div_ceil(SCTP_PIECE).max(1));
                &message[self.sent..message.len().min(self.sent + piece)]
            }
            _ => &message[self.sent..],
        };
        match (&self.socket).write(piece) {
            Ok(n) => {
                self.sent += n;
                let whole = self.sent >= message.len();
                if whole {
                    self.sent = 0;
                }
                Ok(whole)
            }
            Err(e) if is_not_yet(e.kind()) => Ok(false),
            // The queue of the interface is full: later.
            Err(e) if self.kind.is_datagram() && e.raw_os_error() == Some(nix::libc::ENOBUFS) => {
                Ok(false)
            }
            Err(e) => Err(self.broken("send", message.len(), &e)),
        }
    }

    /// Receives a message into `message`, or goes on with it.
    ///
    /// # Errors
    /// The connection broke.
    #[inline]
    pub fn receive(&mut self, message: &mut [u8]) -> Result<Received> {
        if self.open && !self.join()? {
            return Ok(Received::Nothing);
        }
        match (&self.socket).read(&mut message[self.received..]) {
            Ok(n) if self.kind.is_datagram() => Ok(Received::Message(n)),
            Ok(0) => Ok(Received::End),
            Ok(n) => {
                self.received += n;
                if self.received < message.len() {
                    return Ok(Received::Nothing);
                }
                self.received = 0;
                Ok(Received::Message(message.len()))
            }
            Err(e) if is_not_yet(e.kind()) => Ok(Received::Nothing),
            Err(e) => Err(self.broken("receive", message.len(), &e)),
        }
    }

    /// Joins with whoever sent the first datagram; false while there is none.
    #[cold]
    fn join(&mut self) -> Result<bool> {
        let join = || {
            let socket = UdpSocket::from(self.socket.try_clone()?);
            let (_, peer) = socket.peek_from(&mut [0])?;
            socket.connect(peer)
        };
        match join() {
            Ok(()) => {
                self.open = false;
                Ok(true)
            }
            Err(e) if is_not_yet(e.kind()) => Ok(false),
            Err(e) => Err(Error::system("cannot answer a datagram", &e)),
        }
    }

    /// Says that no more will be sent.
    pub fn finish(&self) {
        if !self.kind.is_datagram() {
            // A peer that is gone already knows.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }

    fn broken(&self, what: &str, size: usize, error: &std::io::Error) -> Error {
        let kind = match error.kind() {
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionRefused
            | ErrorKind::BrokenPipe => Failure::Device,
            _ => Failure::System,
        };
        Error::new(
            kind,
            format!(
                "cannot {what} {size} bytes over {}: {error}",
                self.kind.name()
            ),
        )
    }
}

fn is_not_yet(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
