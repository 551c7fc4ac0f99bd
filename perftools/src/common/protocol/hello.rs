//! The first bytes of a connection: who speaks, and which version.
//!
//! A qperf request begins with four little-endian 16-bit numbers: 0, 4, 11 and the test's index.
//! The magic is no such.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::error::{Error, Result};

/// Version of the protocol: both ends have to have the same.
pub const PROTOCOL: u16 = 4;
/// Length of a hello.
pub const LEN: usize = 32;
const MAGIC: [u8; 8] = *b"\x89rperf\r\n";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a peer said it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Its protocol version.
    pub protocol: u16,
    /// Its program's version.
    pub version: String,
    /// A server that serves only who has its token.
    pub wants_token: bool,
}

/// Who is there, by the first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// rperf.
    Rperf(Hello),
    /// A qperf client, whose request begins with these bytes.
    Qperf(Vec<u8>),
    /// A qperf server, which takes a hello for a qperf of another version and says so.
    QperfServer,
    /// Neither.
    Unknown,
}

/// Where a hello says what its sender wants, and that it wants a token.
const FLAGS: usize = 10;
const WANTS_TOKEN: u8 = 1;

/// This program's hello with a protocol version.
pub fn encode(protocol: u16) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&protocol.to_be_bytes());
    let version = &VERSION.as_bytes()[..VERSION.len().min(LEN - 12)];
    bytes[12..12 + version.len()].copy_from_slice(version);
    bytes
}

/// Reads a caller's first bytes, as many as there are.
pub fn decode(bytes: &[u8]) -> Caller {
    if bytes.starts_with(&MAGIC) && bytes.len() >= LEN {
        let version = bytes[12..LEN]
            .iter()
            .take_while(|b| b.is_ascii_graphic())
            .map(|b| char::from(*b))
            .collect();
        let protocol = u16::from_be_bytes([bytes[8], bytes[9]]);
        return Caller::Rperf(Hello {
            protocol,
            version,
            wants_token: bytes[FLAGS] & WANTS_TOKEN != 0,
        });
    }
    if bytes.starts_with(b"upgrade ") {
        return Caller::QperfServer;
    }
    let word = |at: usize| {
        bytes
            .get(at..at + 2)
            .map(|b| u16::from_le_bytes([b[0], b[1]]))
    };
    match (word(0), word(2), word(4), word(6)) {
        (Some(0), Some(1..=99), Some(0..=999), Some(0..=63)) => Caller::Qperf(bytes.to_vec()),
        _ => Caller::Unknown,
    }
}

/// Reads from a stream until a hello is whole or cannot become one.
///
/// # Errors
/// Nothing came in time, or the stream broke.
pub fn read(stream: &mut impl Read) -> Result<Caller> {
    let mut bytes = [0; LEN];
    let mut len = 0;
    while len < LEN {
        match stream.read(&mut bytes[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(super::frame::read_error(&e)),
        }
        let prefix = len.min(MAGIC.len());
        // A qperf request is longer than a hello; a stranger may say less and wait.
        if bytes[..prefix] != MAGIC[..prefix] && len >= 8 {
            break;
        }
    }
    Ok(decode(&bytes[..len]))
}

/// Sends a hello.
///
/// # Errors
/// The stream broke.
pub fn write(stream: &mut TcpStream) -> Result<()> {
    send(stream, 0)
}

/// Sends the hello of a server that wants a token.
///
/// # Errors
/// The stream broke.
pub fn write_wanting_token(stream: &mut TcpStream) -> Result<()> {
    send(stream, WANTS_TOKEN)
}

fn send(stream: &mut TcpStream, flags: u8) -> Result<()> {
    let mut hello = encode(PROTOCOL);
    hello[FLAGS] = flags;
    stream
        .write_all(&hello)
        .map_err(|e| Error::system("cannot greet the peer", &e))
}

/// Whether this protocol version is ours.
///
/// # Errors
/// Names both versions.
pub fn check(peer: &Hello, who: &str) -> Result<()> {
    if peer.protocol == PROTOCOL {
        return Ok(());
    }
    Err(Error::protocol(format!(
        "{who} speaks version {} of the protocol (rperf {}), this end version {PROTOCOL} (rperf {VERSION}): use the same rperf on both",
        peer.protocol, peer.version
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_reads_back_and_versions_are_compared() {
        let Caller::Rperf(hello) = decode(&encode(PROTOCOL)) else {
            panic!("no hello")
        };
        assert_eq!(
            (hello.protocol, hello.version.as_str()),
            (PROTOCOL, VERSION)
        );
        assert!(check(&hello, "the server").is_ok());
        let Caller::Rperf(other) = decode(&encode(77)) else {
            panic!("no hello")
        };
        let text = check(&other, "the server").unwrap_err().to_string();
        assert!(
            text.contains("version 77") && text.contains(&format!("version {PROTOCOL} ")),
            "{text}"
        );
    }

    #[test]
    fn a_qperf_request_is_known() {
        let request = [0, 0, 4, 0, 11, 0, 13, 0, 1];
        assert_eq!(decode(&request), Caller::Qperf(request.to_vec()));
        assert_eq!(decode(b"upgrade qperf on server"), Caller::QperfServer);
        assert_eq!(decode(b"GET / HTTP/1.1\r\n"), Caller::Unknown);
        assert_eq!(decode(&[]), Caller::Unknown);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_somebody(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }
}
