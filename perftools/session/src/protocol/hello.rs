//! The greeting at the start of a connection. It identifies the program and its protocol version.
//!
//! A client sends first and cannot know whether the server is a qperf. qperf logs and rejects what
//! is not a request of its own version. Therefore the client sends a valid request for qperf's
//! test `conf`, with a [hello](encode) in a field that this test does not use. A qperf server
//! replies with a description of its host; all other servers reply with a hello.

use std::io::{Read, Write};
use std::net::TcpStream;

use base::error::{Error, Kind, Result};
use measure::data_key::STREAM_MAGIC;

/// Version of the protocol. Both ends must have the same version.
pub const PROTOCOL: u16 = 10;
/// Length of a hello in bytes.
pub const LEN: usize = 32;
/// Length in bytes of a client's greeting, which is that of a qperf request.
pub const REQUEST_LEN: usize = 200;
/// Start of a qperf request: the version 0.4.11, and 0, the number of the test `conf`.
const QPERF_CONF: [u8; 8] = [0, 0, 4, 0, 11, 0, 0, 0];
/// Offset of the timeout in seconds in a qperf request. qperf fails at once if it is 0.
const QPERF_TIMEOUT: usize = 64;
/// Offset of the hello in a client's greeting: the name of the RDMA device in a qperf request.
const HELLO_IN_REQUEST: usize = 72;
/// Length in bytes of a qperf server's reply to `conf`: four texts, padded with zeros.
const CONF_LEN: usize = 256;
/// Offset of the version in the reply.
const CONF_VERSION: usize = 192;
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
    /// `true` if the server does not serve the address of the client.
    pub rejects_address: bool,
    /// The bytes that were sent, which a handshake authenticates.
    pub bytes: [u8; LEN],
}

/// The kind of peer, recognized by its first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// rperf or ribinfo.
    Rperf(Hello),
    /// A qperf client, with the first bytes of its request.
    Qperf(Vec<u8>),
    /// A qperf server. It has sent the description of its host, or, if it has another version, a
    /// request to upgrade.
    QperfServer,
    /// A data connection of an rperf client, with the client's number in the key of the test.
    Data(u64),
    /// Neither rperf nor qperf.
    Unknown,
}

/// Offset of the flags byte.
const FLAGS: usize = 10;
/// Flag of a server that requires a token.
const REQUIRES_TOKEN: u8 = 1;
/// Flag of a server that does not serve the address of the client.
const REJECTS_ADDRESS: u8 = 2;

/// Encodes this program's hello with the given protocol version.
pub fn encode(protocol: u16) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&protocol.to_be_bytes());
    let version = &VERSION.as_bytes()[..VERSION.len().min(LEN - 12)];
    bytes[12..12 + version.len()].copy_from_slice(version);
    bytes
}

/// Returns the greeting of this program: that of a client, or of a server that requires a token or
/// none.
pub fn own(requires_token: bool) -> Hello {
    let mut bytes = encode(PROTOCOL);
    bytes[FLAGS] = if requires_token { REQUIRES_TOKEN } else { 0 };
    Hello {
        protocol: PROTOCOL,
        version: VERSION.to_owned(),
        requires_token,
        rejects_address: false,
        bytes,
    }
}

/// Encodes the greeting of a client with the given protocol version.
pub fn encode_request(protocol: u16) -> [u8; REQUEST_LEN] {
    let mut bytes = [0; REQUEST_LEN];
    bytes[..QPERF_CONF.len()].copy_from_slice(&QPERF_CONF);
    bytes[QPERF_TIMEOUT] = 5;
    bytes[HELLO_IN_REQUEST..HELLO_IN_REQUEST + LEN].copy_from_slice(&encode(protocol));
    bytes
}

/// Identifies a server by the first bytes received from it.
pub fn decode_reply(bytes: &[u8]) -> Peer {
    let version = bytes.get(CONF_VERSION..CONF_LEN);
    if bytes.starts_with(b"upgrade ") || version.is_some_and(|text| text.starts_with(b"0.4.")) {
        return Peer::QperfServer;
    }
    match decode(bytes) {
        Peer::Qperf(_) | Peer::Data(_) => Peer::Unknown,
        peer => peer,
    }
}

/// Identifies a client by the first bytes received from it.
pub fn decode(bytes: &[u8]) -> Peer {
    if let Some(hello) = bytes.get(HELLO_IN_REQUEST..) {
        if bytes.starts_with(&QPERF_CONF) && hello.starts_with(&MAGIC) {
            return decode(hello);
        }
    }
    if let Some(bytes) = bytes.first_chunk::<LEN>().filter(|b| b.starts_with(&MAGIC)) {
        let version = bytes[12..]
            .iter()
            .take_while(|b| b.is_ascii_graphic())
            .map(|b| char::from(*b))
            .collect();
        let protocol = u16::from_be_bytes([bytes[8], bytes[9]]);
        return Peer::Rperf(Hello {
            protocol,
            version,
            requires_token: bytes[FLAGS] & REQUIRES_TOKEN != 0,
            rejects_address: bytes[FLAGS] & REJECTS_ADDRESS != 0,
            bytes: *bytes,
        });
    }
    if let Some((&STREAM_MAGIC, number)) = bytes.split_first_chunk() {
        if let Some(number) = number.first_chunk() {
            return Peer::Data(u64::from_be_bytes(*number));
        }
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

/// Reads the greeting of a client, until it is complete or known not to be one.
///
/// # Errors
/// - [`Kind::Test`] if the read timed out.
/// - [`Kind::Gone`] or [`Kind::System`] if the connection broke.
pub fn read(stream: &mut impl Read) -> Result<Peer> {
    let mut bytes = [0; REQUEST_LEN];
    let len = read_while(stream, &mut bytes, |read| match read.len() {
        // qperf sends its requests whole.
        8.. if read.starts_with(&QPERF_CONF) => REQUEST_LEN,
        8.. if read.starts_with(&STREAM_MAGIC) => STREAM_MAGIC.len() + size_of::<u64>(),
        8.. if read.starts_with(&MAGIC) => LEN,
        _ => 8,
    })?;
    Ok(decode(&bytes[..len]))
}

/// Reads the greeting of a server, until it is complete or known not to be one.
pub fn read_reply(stream: &mut impl Read) -> Result<Peer> {
    let mut bytes = [0; CONF_LEN];
    let len = read_while(stream, &mut bytes, |read| {
        // The texts of qperf have no line feeds, and those of most other programs do.
        let is_conf = |read: &[u8]| read.iter().all(|b| *b == 0 || !b.is_ascii_control());
        match read.len() {
            8.. if read.starts_with(&MAGIC) => LEN,
            8.. if read.starts_with(b"upgrade ") || !is_conf(read) => 8,
            8.. => CONF_LEN,
            // The challenge of a server can follow its hello.
            _ => 8,
        }
    })?;
    Ok(decode_reply(&bytes[..len]))
}

/// Reads until the buffer has as many bytes as `wanted` says of the bytes so far, or until the peer
/// closes the connection. Returns their number.
fn read_while(
    stream: &mut impl Read,
    bytes: &mut [u8],
    wanted: impl Fn(&[u8]) -> usize,
) -> Result<usize> {
    let mut len = 0;
    loop {
        let end = wanted(&bytes[..len]);
        if len >= end {
            return Ok(len);
        }
        match stream.read(&mut bytes[len..end]) {
            Ok(0) if len == 0 => {
                return Err(super::frame::read_error(
                    &std::io::ErrorKind::UnexpectedEof.into(),
                ));
            }
            Ok(0) => return Ok(len),
            Ok(n) => len += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(super::frame::read_error(&e)),
        }
    }
}

/// Sends the greeting of a client.
pub(crate) fn write_request(stream: &mut TcpStream) -> Result<()> {
    write_all(stream, &encode_request(PROTOCOL))
}

/// Sends the hello of a server.
pub fn write(stream: &mut TcpStream) -> Result<()> {
    write_all(stream, &own(false).bytes)
}

/// Sends the hello of a server that requires a token.
pub fn write_requiring_token(stream: &mut TcpStream) -> Result<()> {
    write_all(stream, &own(true).bytes)
}

/// Sends the hello of a server that does not serve the address of the client.
pub(crate) fn write_rejection(stream: &mut TcpStream) -> Result<()> {
    let mut bytes = encode(PROTOCOL);
    bytes[FLAGS] = REJECTS_ADDRESS;
    write_all(stream, &bytes)
}

fn write_all(stream: &mut TcpStream, bytes: &[u8]) -> Result<()> {
    stream
        .write_all(bytes)
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
    use measure::data_key::DataKey;
    use test_support::text::assert_contains;

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
        assert_contains(&text, &["version 77", &format!("version {PROTOCOL} ")]);
    }

    #[test]
    fn a_connection_closed_before_a_hello_is_an_error() {
        let error = read(&mut &[][..]).err().unwrap();
        assert_eq!(error.kind(), Kind::Gone);
        assert!(matches!(read(&mut &b"GET"[..]), Ok(Peer::Unknown)));
        assert!(matches!(read_reply(&mut &b"SSH"[..]), Ok(Peer::Unknown)));
    }

    /// A stream that fails the test when more is read than there is.
    struct Open<'a>(&'a [u8]);

    impl Read for Open<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            assert!(!self.0.is_empty(), "a read that waits for the peer");
            self.0.read(buffer)
        }
    }

    #[test]
    fn other_programs_are_recognized_without_waiting() {
        let is_unknown = |peer| matches!(peer, Ok(Peer::Unknown));
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"SSH-2.0-OpenSSH_9.2\r\n",
            &[255; 8],
        ] {
            assert!(is_unknown(read(&mut Open(bytes))), "{bytes:?}");
        }
        let replies = [
            &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            &[1; 8],
        ];
        for bytes in replies {
            assert!(is_unknown(read_reply(&mut Open(bytes))), "{bytes:?}");
        }
    }

    #[test]
    fn greetings_of_clients_and_servers_read_back() {
        let request = encode_request(77);
        for greeting in [&request[..], &encode(77)] {
            let Ok(Peer::Rperf(hello)) = read(&mut Open(greeting)) else {
                panic!("no hello: {greeting:?}")
            };
            assert_eq!(hello.protocol, 77);
        }
        // What follows a greeting is not read.
        let followed = |greeting: &[u8]| [greeting, b"next"].concat();
        let (request, reply) = (followed(&request), followed(&encode(PROTOCOL)));
        let (mut from_client, mut from_server) = (&request[..], &reply[..]);
        assert!(matches!(read(&mut from_client), Ok(Peer::Rperf(_))));
        assert!(matches!(read_reply(&mut from_server), Ok(Peer::Rperf(_))));
        assert_eq!((from_client, from_server), (&b"next"[..], &b"next"[..]));
        // The same request without a hello is one of qperf.
        let mut request = encode_request(PROTOCOL);
        request[HELLO_IN_REQUEST..].fill(0);
        assert_eq!(
            read(&mut Open(&request)).unwrap(),
            Peer::Qperf(request.to_vec())
        );
    }

    #[test]
    fn data_connections_are_recognized() {
        let key = DataKey {
            client: 0x0102_0304_0506_0708,
            server: 9,
        };
        let stream = [&key.stream_bytes()[..], b"data"].concat();
        let mut from_client = &stream[..];
        assert_eq!(read(&mut from_client).unwrap(), Peer::Data(key.client));
        assert_eq!(from_client, b"data");
        assert_eq!(read(&mut &stream[..15]).unwrap(), Peer::Unknown);
        assert_eq!(decode_reply(&stream), Peer::Unknown);
    }

    #[test]
    fn qperf_requests_are_recognized() {
        let request = [0, 0, 4, 0, 11, 0, 13, 0, 1];
        assert_eq!(decode(&request), Peer::Qperf(request.to_vec()));
        assert_eq!(decode_reply(&request), Peer::Unknown);
        assert_eq!(decode_reply(b"upgrade qperf on server"), Peer::QperfServer);
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
