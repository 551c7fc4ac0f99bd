//! Frames: four bytes of length, most significant first, then as many bytes of JSON.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::common::error::{Error, Kind, Result};

/// The longest frame: a specification takes a few hundred bytes.
pub const MAX: usize = 64 << 10;

/// Writes a frame.
///
/// # Errors
/// The stream broke or the peer does not read.
pub fn write<T: Serialize>(stream: &mut impl Write, message: &T) -> Result<()> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)
        .map_err(|e| Error::protocol(format!("cannot write a message: {e}")))?;
    let len = bytes.len() - 4;
    if len > MAX {
        return Err(Error::protocol(format!(
            "a message of {len} bytes: the limit is {MAX}"
        )));
    }
    bytes[..4].copy_from_slice(&u32::try_from(len).unwrap_or(0).to_be_bytes());
    stream.write_all(&bytes).map_err(|e| match e.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => gone(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Error::new(Kind::Gone, "the peer does not read what it is sent")
        }
        _ => Error::system("cannot write to the peer", &e),
    })
}

/// Reads a frame.
///
/// # Errors
/// The stream ended or broke, nothing came in time, the frame is too long or not what was expected.
pub fn read<T: DeserializeOwned>(stream: &mut impl Read) -> Result<T> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).map_err(|e| read_error(&e))?;
    let len = u32::from_be_bytes(len) as usize;
    if len > MAX {
        return Err(Error::protocol(format!(
            "the peer announced a message of {len} bytes: the limit is {MAX}"
        )));
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).map_err(|e| read_error(&e))?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::protocol(format!("the peer sent what is no message: {e}")))
}

/// Reads from a stream until a moment, however slowly the peer speaks.
#[derive(Debug)]
pub struct Until<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl<'a> Until<'a> {
    /// All reads together may take `time`.
    pub fn new(stream: &'a TcpStream, time: Duration) -> Self {
        Self {
            stream,
            deadline: Instant::now() + time,
        }
    }
}

impl Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(bytes)
    }
}

/// What a failed read says of the peer.
pub(super) fn read_error(error: &std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::BrokenPipe
        | ErrorKind::ConnectionAborted => gone(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::test(
            "the peer said nothing in time: is its host busy? --timeout (-to) sets how long to wait",
        ),
        _ => Error::system("cannot read from the peer", error),
    }
}

fn gone() -> Error {
    Error::new(Kind::Gone, "the peer closed the connection")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rperf::control::message::Message;

    #[test]
    fn a_message_reads_back() {
        let mut bytes = Vec::new();
        write(&mut bytes, &Message::Finished { sent: 7, thread: 1 }).unwrap();
        assert_eq!(
            read::<Message>(&mut bytes.as_slice()).unwrap(),
            Message::Finished { sent: 7, thread: 1 }
        );
    }

    #[test]
    fn an_oversized_frame_is_refused_before_it_is_read() {
        let bytes = [0xff; 64];
        let text = read::<Message>(&mut bytes.as_slice())
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("4294967295") && text.contains("65536"),
            "{text}"
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes: Vec<u8>) {
            let _ = read::<Message>(&mut bytes.as_slice());
            let mut framed = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
            framed.extend_from_slice(&bytes);
            let _ = read::<Message>(&mut framed.as_slice());
        }
    }
}
