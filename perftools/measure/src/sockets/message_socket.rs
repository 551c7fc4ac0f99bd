//! A connected socket that transfers messages.
//!
//! No call blocks indefinitely: calls on a blocking socket return after `NAP`, and calls on a
//! non-blocking socket return immediately. The loops can therefore check the clock and the control
//! connection without another thread.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use base::error::{Error, Kind as Failure, Result};
use nix::sys::socket::{MsgFlags, recv};
use socket2::{SockAddr, Socket};

use super::SocketKind;
use host::tcp::{self, TcpConnection};

/// Longest time that a call blocks.
pub(crate) const NAP: Duration = Duration::from_millis(20);
/// Most bytes that one call passes to SCTP, which rejects messages longer than its buffer.
const SCTP_CHUNK: usize = 64 << 10;

/// Result of a call that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceivedMessage {
    /// A message of this many bytes.
    Message(usize),
    /// Part of a message.
    Part,
    /// Nothing yet.
    Nothing,
    /// The peer has closed its sending direction, or the stream was reset
    /// (`MessageSocket::take_reset`).
    End,
}

/// Result of a call that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The socket has taken all of the message.
    Message,
    /// The socket has taken a part of it.
    Part,
    /// The socket has no room.
    Nothing,
}

/// A connected socket. The next call continues a message that was sent or received in part.
#[derive(Debug)]
pub(crate) struct MessageSocket {
    pub(super) socket: Socket,
    kind: SocketKind,
    /// Bytes of the current message that were sent.
    sent: usize,
    /// Bytes of the current message that were received.
    received: usize,
    /// The socket is for datagrams and not connected yet; the first sender becomes the peer.
    unconnected: bool,
    /// The error with which the stream was reset while this end received.
    reset: Option<Error>,
    /// The ends of a TCP connection.
    connection: Option<TcpConnection>,
}

impl MessageSocket {
    /// Wraps a connected socket, or a bound datagram socket. With `poll`, calls do not block.
    pub(crate) fn new(socket: Socket, kind: SocketKind, poll: bool) -> Result<Self> {
        let unconnected = kind.is_datagram() && socket.peer_addr().is_err();
        let set_up = || {
            socket.set_nonblocking(poll)?;
            socket.set_read_timeout(Some(NAP))?;
            socket.set_write_timeout(Some(NAP))
        };
        set_up().map_err(|e| {
            Error::system(
                format!("cannot set options of the {} socket", kind.name()),
                &e,
            )
        })?;
        let address = |address: std::io::Result<SockAddr>| address.ok()?.as_socket();
        let (local, peer) = (address(socket.local_addr()), address(socket.peer_addr()));
        let connection = (kind == SocketKind::Tcp).then_some(()).and(local.zip(peer));
        Ok(Self {
            connection: connection.map(|(local, peer)| TcpConnection { local, peer }),
            socket,
            kind,
            sent: 0,
            received: 0,
            unconnected,
            reset: None,
        })
    }

    /// Returns the number of TCP segments that this end has retransmitted; `None` if it is unknown
    /// or the socket has another protocol.
    pub(crate) fn retransmitted(&self) -> Option<u64> {
        tcp::retransmitted(self.connection.as_slice())
    }

    /// Returns the protocol.
    pub(crate) fn kind(&self) -> SocketKind {
        self.kind
    }

    /// Returns `true` if a message was sent in part.
    pub(crate) fn has_partial_send(&self) -> bool {
        self.sent > 0
    }

    /// Sends a message, or the rest of it.
    #[inline]
    pub(crate) fn send(&mut self, message: &[u8]) -> Result<Sent> {
        let chunk = match self.kind {
            // Chunks have equal sizes: a small last one would wait for the acknowledgement of the
            // others.
            SocketKind::Sctp => {
                let len = message
                    .len()
                    .div_ceil(message.len().div_ceil(SCTP_CHUNK).max(1));
                &message[self.sent..message.len().min(self.sent + len)]
            }
            _ => &message[self.sent..],
        };
        match (&self.socket).write(chunk) {
            Ok(n) => {
                self.sent += n;
                if self.sent < message.len() {
                    return Ok(Sent::Part);
                }
                self.sent = 0;
                Ok(Sent::Message)
            }
            Err(e) if is_transient(e.kind()) => Ok(Sent::Nothing),
            // The queue of the interface is full.
            Err(e) if self.kind.is_datagram() && e.raw_os_error() == Some(nix::libc::ENOBUFS) => {
                Ok(Sent::Nothing)
            }
            Err(e) => Err(self.io_error("send", message.len(), &e)),
        }
    }

    /// Takes the error of a stream that was reset while this end received.
    pub(crate) fn take_reset(&mut self) -> Option<Error> {
        self.reset.take()
    }

    /// Receives a message into `message`, or the rest of it.
    ///
    /// A reset is an end like others, because it can follow the last message: with SCTP, an old
    /// packet that reaches the peer after the peer has closed its association is answered with an
    /// `ABORT`. The caller knows whether messages are missing.
    #[inline]
    pub(crate) fn receive(&mut self, message: &mut [u8]) -> Result<ReceivedMessage> {
        if self.unconnected && !self.connect_to_first_sender()? {
            return Ok(ReceivedMessage::Nothing);
        }
        if self.reset.is_some() {
            return Ok(ReceivedMessage::End);
        }
        let rest = &mut message[self.received..];
        let received = recv(self.socket.as_raw_fd(), rest, self.receive_flags());
        match received.map_err(std::io::Error::from) {
            Ok(n) if self.kind.is_datagram() => Ok(ReceivedMessage::Message(n)),
            Ok(0) => Ok(ReceivedMessage::End),
            Ok(n) => {
                self.received += n;
                if self.received < message.len() {
                    return Ok(ReceivedMessage::Part);
                }
                self.received = 0;
                Ok(ReceivedMessage::Message(message.len()))
            }
            Err(e) if is_transient(e.kind()) => Ok(ReceivedMessage::Nothing),
            Err(e) => {
                let error = self.io_error("receive", message.len(), &e);
                if self.kind.is_datagram() || e.kind() != ErrorKind::ConnectionReset {
                    return Err(error);
                }
                self.reset = Some(error);
                Ok(ReceivedMessage::End)
            }
        }
    }

    /// Returns the flags of a call that receives. One call takes a whole message of a stream, if it
    /// arrives in time.
    fn receive_flags(&self) -> MsgFlags {
        if self.kind == SocketKind::Tcp {
            MsgFlags::MSG_WAITALL
        } else {
            MsgFlags::empty()
        }
    }

    /// Connects the socket to the sender of the first datagram. Returns `false` if none has
    /// arrived.
    #[cold]
    fn connect_to_first_sender(&mut self) -> Result<bool> {
        let connect = || {
            let socket = UdpSocket::from(self.socket.try_clone()?);
            let (_, peer) = socket.peek_from(&mut [0])?;
            socket.connect(peer)
        };
        match connect() {
            Ok(()) => {
                self.unconnected = false;
                Ok(true)
            }
            Err(e) if is_transient(e.kind()) => Ok(false),
            Err(e) => Err(Error::system(
                "cannot connect to the sender of a datagram",
                &e,
            )),
        }
    }

    /// Shuts down the sending direction of a stream.
    pub(crate) fn shutdown_send(&self) {
        if !self.kind.is_datagram() {
            // An error means that the peer has already closed the connection.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }

    fn io_error(&self, what: &str, size: usize, error: &std::io::Error) -> Error {
        // Linux calls an association that ends while a send waits "No such process"
        // (`sctp_wait_for_sndbuf`).
        let ended = std::io::Error::from(ErrorKind::ConnectionReset);
        let has_ended =
            self.kind == SocketKind::Sctp && error.raw_os_error() == Some(nix::libc::ESRCH);
        let error = if has_ended { &ended } else { error };
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

fn is_transient(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
