//! Frames of the control protocol: a 32-bit big-endian length, then that many bytes of JSON.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use base::peer_text::printable_json;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum length of a frame in bytes. A test specification takes a few hundred bytes.
pub const MAX_LEN: usize = 64 << 10;

/// Maximum length in bytes of a frame with the facts of a host, which grow with its ports.
pub const MAX_FACTS_LEN: usize = 8 << 20;

/// Writes a frame.
///
/// # Errors
/// - [`Kind::Protocol`] if the message is longer than [`MAX_LEN`].
/// - [`Kind::Gone`] if the peer closed the connection or stopped reading.
/// - [`Kind::System`] if the stream returns another error.
pub fn write<T: Serialize>(stream: &mut impl Write, message: &T) -> Result<()> {
    write_up_to(stream, message, MAX_LEN)
}

/// Writes a frame of at most `max` bytes, like [`write()`].
pub fn write_up_to<T: Serialize>(stream: &mut impl Write, message: &T, max: usize) -> Result<()> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)
        .map_err(|e| Error::protocol(format!("encode a message: {e}")))?;
    let len = bytes.len() - 4;
    if len > max {
        return Err(Error::protocol(format!(
            "cannot send to the peer: a message of {len} bytes exceeds the limit of {max} bytes"
        )));
    }
    bytes[..4].copy_from_slice(&u32::try_from(len).unwrap_or(0).to_be_bytes());
    stream.write_all(&bytes).map_err(|e| write_error(&e))
}

/// Converts the error of a write to the peer.
pub(super) fn write_error(error: &std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => gone(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::new(
            Kind::Gone,
            "cannot send to the peer: the peer stopped reading",
        ),
        _ => Error::system("cannot send to the peer", error),
    }
}

/// Reads a frame. All strings of the message are safe to print.
///
/// # Errors
/// - [`Kind::Gone`] if the peer closed the connection.
/// - [`Kind::Test`] if the read timed out.
/// - [`Kind::Protocol`] if the frame is longer than [`MAX_LEN`] or is not a `T`.
/// - [`Kind::System`] if the stream returns another error.
pub fn read<T: DeserializeOwned>(stream: &mut impl Read) -> Result<T> {
    read_up_to(stream, MAX_LEN)
}

/// Reads a frame of at most `max` bytes, like [`read`].
pub fn read_up_to<T: DeserializeOwned>(stream: &mut impl Read, max: usize) -> Result<T> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).map_err(|e| read_error(&e))?;
    let len = u32::from_be_bytes(len) as usize;
    if len > max {
        return Err(Error::protocol(format!(
            "cannot receive from the peer: a message of {len} bytes exceeds the limit of {max} bytes"
        )));
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).map_err(|e| read_error(&e))?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Error::protocol("cannot receive from the peer: invalid message: it is not UTF-8")
    })?;
    serde_json::from_str(&printable_json(&text)).map_err(|e| {
        Error::protocol(format!(
            "cannot receive from the peer: invalid message: {e}"
        ))
    })
}

/// A reader with one deadline for all reads, even if the peer sends byte by byte.
#[derive(Debug)]
pub struct DeadlineReader<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl<'a> DeadlineReader<'a> {
    /// Creates a reader with a deadline `timeout` from now.
    pub fn new(stream: &'a TcpStream, timeout: Duration) -> Self {
        Self {
            stream,
            deadline: Instant::now() + timeout,
        }
    }
}

impl Read for DeadlineReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(bytes)
    }
}

/// Converts the error of a read from the peer.
pub(super) fn read_error(error: &std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::BrokenPipe
        | ErrorKind::ConnectionAborted => gone(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Error::test("cannot receive from the peer: no data before the timeout")
                .with_help("if the peer's host is busy, increase --timeout (-to)")
        }
        ErrorKind::InvalidData => Error::protocol(
            "cannot receive from the peer: a message was changed, repeated or omitted on the way",
        ),
        _ => Error::system("cannot receive from the peer", error),
    }
}

fn gone() -> Error {
    Error::new(Kind::Gone, "the peer closed the connection")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rperf::message::Message;
    use measure::spec::payload_file::{MAX_PAYLOAD_FILE, PayloadFile};
    use test_support::text::assert_contains;

    #[test]
    fn a_frame_holds_the_longest_payload_file() {
        let longest = PayloadFile::new("f", &vec![170; MAX_PAYLOAD_FILE]);
        let mut frame = Vec::new();
        write(&mut frame, &longest).unwrap();
        assert_eq!(read::<PayloadFile>(&mut &*frame).unwrap(), longest);
    }

    #[test]
    fn messages_read_back_as_written() {
        let mut bytes = Vec::new();
        write(&mut bytes, &Message::Finished { sent: 7, thread: 1 }).unwrap();
        assert_eq!(
            read::<Message>(&mut bytes.as_slice()).unwrap(),
            Message::Finished { sent: 7, thread: 1 }
        );
    }

    #[test]
    fn oversized_frames_are_rejected_before_reading_them() {
        let bytes = [0xff; 64];
        let text = read::<Message>(&mut bytes.as_slice())
            .unwrap_err()
            .to_string();
        assert_contains(&text, &["4294967295", "65536"]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_decode_without_a_panic(bytes: Vec<u8>) {
            let _ = read::<Message>(&mut bytes.as_slice());
            let mut framed = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
            framed.extend_from_slice(&bytes);
            let _ = read::<Message>(&mut framed.as_slice());
        }
    }
}
