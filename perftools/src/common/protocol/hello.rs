//! The greeting at the start of a connection. It identifies the program and its protocol version.
//!
//! A qperf request begins with four little-endian 16-bit numbers: 0, 4, 11 and the test's index.
//! `MAGIC` differs from the start of every qperf request.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::error::{Error, Kind, Result};

/// Version of the protocol. Both ends must have the same version.
pub const PROTOCOL: u16 = 6;
/// Length of a hello in bytes.
pub const LEN: usize = 32;
/// First bytes of a hello.
const MAGIC: [u8; 8] = *b"\x89rperf\r\n";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A decoded hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The peer's protocol version.
    pub protocol: u16,
    /// Version of the peer's program.
    pub version: String,
    /// `true` if the server accepts only clients that have its token.
    pub requires_token: bool,
}

/// The kind of peer, recognized by its first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// rperf or ribinfo.
    Rperf(Hello),
    /// A qperf client, with the first bytes of its request.
    Qperf(Vec<u8>),
    /// A qperf server. It takes a hello for the request of another qperf version and asks for an
    /// upgrade.
    QperfServer,
    /// Neither rperf nor qperf.
    Unknown,
}

/// Offset of the flags byte.
const FLAGS: usize = 10;
/// Flag of a server that requires a token.
const REQUIRES_TOKEN: u8 = 1;

/// Encodes this program's hello with the given protocol version.
pub fn encode(protocol: u16) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&protocol.to_be_bytes());
    let version = &VERSION.as_bytes()[..VERSION.len().min(LEN - 12)];
    bytes[12..12 + version.len()].copy_from_slice(version);
    bytes
}

/// Identifies a peer by the first bytes received from it.
pub fn decode(bytes: &[u8]) -> Peer {
    if bytes.starts_with(&MAGIC) && bytes.len() >= LEN {
        let version = bytes[12..LEN]
            .iter()
            .take_while(|b| b.is_ascii_graphic())
            .map(|b| char::from(*b))
            .collect();
        let protocol = u16::from_be_bytes([bytes[8], bytes[9]]);
        return Peer::Rperf(Hello {
            protocol,
            version,
            requires_token: bytes[FLAGS] & REQUIRES_TOKEN != 0,
        });
    }
    if bytes.starts_with(b"upgrade ") {
        return Peer::QperfServer;
    }
    let word = |offset: usize| {
        bytes
            .get(offset..offset + 2)
            .map(|b| u16::from_le_bytes([b[0], b[1]]))
    };
    match (word(0), word(2), word(4), word(6)) {
        (Some(0), Some(1..=99), Some(0..=999), Some(0..=63)) => Peer::Qperf(bytes.to_vec()),
        _ => Peer::Unknown,
    }
}

/// Reads from a stream until the hello is complete or the bytes are known not to be one.
///
/// # Errors
/// - [`Kind::Test`] if the read timed out.
/// - [`Kind::Gone`] or [`Kind::System`] if the connection broke.
pub fn read(stream: &mut impl Read) -> Result<Peer> {
    let mut bytes = [0; LEN];
    let mut len = 0;
    while len < LEN {
        match stream.read(&mut bytes[len..]) {
            Ok(0) if len == 0 => {
                return Err(super::frame::read_error(
                    &std::io::ErrorKind::UnexpectedEof.into(),
                ));
            }
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(super::frame::read_error(&e)),
        }
        let prefix = len.min(MAGIC.len());
        // Do not wait for a whole hello: an unknown peer may send less and then wait for a reply.
        if bytes[..prefix] != MAGIC[..prefix] && len >= 8 {
            break;
        }
    }
    Ok(decode(&bytes[..len]))
}

/// Sends a hello.
///
/// # Errors
/// Returns [`Kind::System`] if the connection broke.
pub fn write(stream: &mut TcpStream) -> Result<()> {
    send(stream, 0)
}

/// Sends the hello of a server that requires a token.
///
/// # Errors
/// Returns [`Kind::System`] if the connection broke.
pub fn write_requiring_token(stream: &mut TcpStream) -> Result<()> {
    send(stream, REQUIRES_TOKEN)
}

fn send(stream: &mut TcpStream, flags: u8) -> Result<()> {
    let mut hello = encode(PROTOCOL);
    hello[FLAGS] = flags;
    stream
        .write_all(&hello)
        .map_err(|e| Error::system("send the greeting", &e))
}

/// Checks that the peer has this program's protocol version. `name` names the peer in the error.
///
/// # Errors
/// Returns [`Kind::Protocol`] with both versions if they differ.
pub fn check(peer: &Hello, name: &str) -> Result<()> {
    if peer.protocol == PROTOCOL {
        return Ok(());
    }
    Err(Error::new(Kind::Protocol, format!(
        "handshake with {name}: protocol version {} (rperf {}) differs from version {PROTOCOL} (rperf {VERSION}) of this program",
        peer.protocol, peer.version
    ))
    .with_help("use the same version of rperf on both hosts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_reads_back_and_versions_are_compared() {
        let Peer::Rperf(hello) = decode(&encode(PROTOCOL)) else {
            panic!("no hello")
        };
        assert_eq!(
            (hello.protocol, hello.version.as_str()),
            (PROTOCOL, VERSION)
        );
        assert!(check(&hello, "the server").is_ok());
        let Peer::Rperf(other) = decode(&encode(77)) else {
            panic!("no hello")
        };
        let text = check(&other, "the server").unwrap_err().to_string();
        assert!(
            text.contains("version 77") && text.contains(&format!("version {PROTOCOL} ")),
            "{text}"
        );
    }

    #[test]
    fn a_connection_closed_before_a_hello_is_an_error() {
        let error = read(&mut &[][..]).err().unwrap();
        assert_eq!(error.kind(), Kind::Gone);
        assert!(matches!(read(&mut &b"GET"[..]), Ok(Peer::Unknown)));
    }

    #[test]
    fn qperf_requests_are_recognized() {
        let request = [0, 0, 4, 0, 11, 0, 13, 0, 1];
        assert_eq!(decode(&request), Peer::Qperf(request.to_vec()));
        assert_eq!(decode(b"upgrade qperf on server"), Peer::QperfServer);
        assert_eq!(decode(b"GET / HTTP/1.1\r\n"), Peer::Unknown);
        assert_eq!(decode(&[]), Peer::Unknown);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_decode_without_a_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }
}
