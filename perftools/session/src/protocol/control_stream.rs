//! A control connection after the handshake: plain without a token, protected with one.
//!
//! A protected connection consists of records: a 16-bit big-endian length, then that many bytes of
//! a Noise transport message. The number of a record is its nonce, so that a record that was
//! changed, repeated, omitted or reordered ends the connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use base::error::{Error, Result};
use rdma_noise::{Handshake, MAX_CONTENT};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::frame::{self, DeadlineReader};

/// The keys of a control connection, or none without a token.
#[derive(Clone, Debug)]
pub struct Keys(Option<Arc<rdma_noise::Keys>>);

impl Keys {
    /// Returns the keys of a connection that is not protected.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Returns the keys of a completed handshake.
    pub(super) fn new(state: Handshake) -> Result<Self> {
        let keys = state
            .finish()
            .map_err(|e| Error::protocol(format!("cannot end the handshake: {e}")))?;
        Ok(Self(Some(Arc::new(keys))))
    }
}

/// A control connection.
#[derive(Debug)]
pub struct ControlStream {
    reader: ControlReader,
    writer: ControlWriter,
}

/// The receiving half of a control connection.
#[derive(Debug)]
pub struct ControlReader {
    socket: Arc<TcpStream>,
    /// The keys and the record that is being read; `None` without a token.
    protection: Option<Opener>,
}

/// The sending half of a control connection.
#[derive(Debug)]
pub struct ControlWriter {
    socket: Arc<TcpStream>,
    /// The keys; `None` without a token.
    protection: Option<Sealer>,
}

#[derive(Debug)]
struct Opener {
    keys: Arc<rdma_noise::Keys>,
    /// Number of the next record.
    next: u64,
    /// Content of the latest record.
    content: Vec<u8>,
    /// Number of its bytes that were read.
    read: usize,
}

#[derive(Debug)]
struct Sealer {
    keys: Arc<rdma_noise::Keys>,
    /// Number of the next record.
    next: u64,
}

impl Opener {
    /// Reads the next record.
    fn read_record(&mut self, raw: &mut impl Read) -> io::Result<()> {
        let mut len = [0; 2];
        raw.read_exact(&mut len)?;
        let mut record = vec![0; u16::from_be_bytes(len).into()];
        raw.read_exact(&mut record)?;
        self.content = self.keys.open(self.next, &record)?;
        self.read = 0;
        self.next += 1;
        Ok(())
    }

    fn read(&mut self, raw: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
        if self.read == self.content.len() {
            self.read_record(raw)?;
            // A sender has no reason for an empty record.
            if self.content.is_empty() {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        let len = (&self.content[self.read..]).read(bytes)?;
        self.read += len;
        Ok(len)
    }
}

/// A connection with a time limit, as a stream of bytes.
struct Limited<'a, R> {
    raw: R,
    protection: Option<&'a mut Opener>,
}

impl<R: Read> Read for Limited<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &mut self.protection {
            Some(opener) => opener.read(&mut self.raw, bytes),
            None => self.raw.read(bytes),
        }
    }
}

impl ControlReader {
    /// Receives a message, like [`frame::read`]. Waits for at most `timeout`; without one, for the
    /// read timeout of the socket.
    ///
    /// # Errors
    /// Returns the errors of [`frame::read`], and an error of
    /// [`Kind::Protocol`](base::error::Kind::Protocol) if a message was changed on the way.
    pub fn receive<T: DeserializeOwned>(&mut self, timeout: Option<Duration>) -> Result<T> {
        self.receive_up_to(timeout, frame::MAX_LEN)
    }

    /// Receives a message of at most `max` bytes, like [`receive`](Self::receive).
    pub fn receive_up_to<T: DeserializeOwned>(
        &mut self,
        timeout: Option<Duration>,
        max: usize,
    ) -> Result<T> {
        let protection = self.protection.as_mut();
        if let Some(timeout) = timeout {
            let raw = DeadlineReader::new(&self.socket, timeout);
            frame::read_up_to(&mut Limited { raw, protection }, max)
        } else {
            let raw = &*self.socket;
            frame::read_up_to(&mut Limited { raw, protection }, max)
        }
    }

    /// Returns the socket.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Returns a reader of another connection with the same keys, from its first record.
    #[cfg(test)]
    pub(super) fn on(&self, socket: TcpStream) -> Self {
        let keys = self
            .protection
            .as_ref()
            .map(|opener| Arc::clone(&opener.keys));
        ControlStream::new(socket, &Keys(keys)).reader
    }
}

impl ControlWriter {
    /// Returns the socket.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Sends a message, like [`frame::write()`].
    pub fn send<T: Serialize>(&mut self, message: &T) -> Result<()> {
        frame::write(self, message)
    }

    /// Sends a message of at most `max` bytes, like [`frame::write_up_to`].
    pub fn send_up_to<T: Serialize>(&mut self, message: &T, max: usize) -> Result<()> {
        frame::write_up_to(self, message, max)
    }
}

impl Write for ControlWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut socket = &*self.socket;
        let Some(sealer) = &mut self.protection else {
            return socket.write(bytes);
        };
        let content = &bytes[..bytes.len().min(MAX_CONTENT)];
        let record = sealer.keys.seal(sealer.next, content)?;
        sealer.next += 1;
        let len = u16::try_from(record.len()).unwrap_or(0).to_be_bytes();
        let record = [&len[..], &record].concat();
        socket.write_all(&record)?;
        Ok(content.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ControlStream {
    /// Creates a connection after its handshake.
    pub fn new(socket: TcpStream, keys: &Keys) -> Self {
        let socket = Arc::new(socket);
        let keys = keys.0.as_ref();
        Self {
            reader: ControlReader {
                socket: Arc::clone(&socket),
                protection: keys.map(|keys| Opener {
                    keys: Arc::clone(keys),
                    next: 0,
                    content: Vec::new(),
                    read: 0,
                }),
            },
            writer: ControlWriter {
                socket,
                protection: keys.map(|keys| Sealer {
                    keys: Arc::clone(keys),
                    next: 0,
                }),
            },
        }
    }

    /// Returns the socket.
    pub fn socket(&self) -> &TcpStream {
        self.reader.socket()
    }

    /// Receives a message. See [`ControlReader::receive`].
    pub fn receive<T: DeserializeOwned>(&mut self, timeout: Duration) -> Result<T> {
        self.reader.receive(Some(timeout))
    }

    /// Receives a message of at most `max` bytes. See [`ControlReader::receive_up_to`].
    pub fn receive_up_to<T: DeserializeOwned>(
        &mut self,
        timeout: Duration,
        max: usize,
    ) -> Result<T> {
        self.reader.receive_up_to(Some(timeout), max)
    }

    /// Sends a message. See [`ControlWriter::send`].
    pub fn send<T: Serialize>(&mut self, message: &T) -> Result<()> {
        self.writer.send(message)
    }

    /// Sends a message of at most `max` bytes. See [`ControlWriter::send_up_to`].
    pub fn send_up_to<T: Serialize>(&mut self, message: &T, max: usize) -> Result<()> {
        self.writer.send_up_to(message, max)
    }

    /// Divides the connection into its halves, for two threads.
    pub(crate) fn split(self) -> (ControlReader, ControlWriter) {
        (self.reader, self.writer)
    }
}
