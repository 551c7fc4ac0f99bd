//! The handshake of a control connection, after the greetings.
//!
//! With a token it is the Noise handshake `NNpsk0`, whose pre-shared key is derived from the token.
//! Afterwards each end knows that the other one has the token, and all messages are encrypted and
//! authenticated. Both greetings are part of the handshake, so that it fails if they were changed
//! on the way. Without a token, the messages that follow are neither.
//!
//! ```text
//! client                                    server
//!   length, ephemeral key, tag ───────────▶           rejects a client without the token
//!          ◀────────────────────────────── length, ephemeral key, tag
//! ```
//! A length has 16 bits, in network byte order. It is 0 if the server rejects the client.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base::error::{Error, Result};
pub use rdma_noise::HANDSHAKE_LEN as MESSAGE_LEN;
use rdma_noise::Handshake;

use super::control_stream::Keys;
use super::frame::{self, DeadlineReader};
use super::hello::{self, Hello};
use super::token::Token;

/// Creates the handshake of either end.
fn handshake(token: &Token, client: &Hello, server: &Hello, is_client: bool) -> Result<Handshake> {
    let prologue = [client.bytes, server.bytes].concat();
    Handshake::new(token.key(), &prologue, is_client)
        .map_err(|e| Error::protocol(format!("cannot start the handshake: {e}")))
}

fn next_message(state: &mut Handshake) -> Result<[u8; MESSAGE_LEN]> {
    let message = state.write();
    message.map_err(|e| Error::protocol(format!("cannot continue the handshake: {e}")))
}

fn write_message(mut stream: &TcpStream, message: &[u8; MESSAGE_LEN]) -> Result<()> {
    let len = u16::try_from(MESSAGE_LEN).unwrap_or(0).to_be_bytes();
    stream
        .write_all(&[&len[..], message].concat())
        .map_err(|e| frame::write_error(&e))
}

/// Reads a message. Returns `None` if it has another length.
fn read_message(stream: &TcpStream, timeout: Duration) -> Result<Option<[u8; MESSAGE_LEN]>> {
    let mut reader = DeadlineReader::new(stream, timeout);
    let mut len = [0; 2];
    reader
        .read_exact(&mut len)
        .map_err(|e| frame::read_error(&e))?;
    if usize::from(u16::from_be_bytes(len)) != MESSAGE_LEN {
        return Ok(None);
    }
    let mut message = [0; MESSAGE_LEN];
    reader
        .read_exact(&mut message)
        .map_err(|e| frame::read_error(&e))?;
    Ok(Some(message))
}

/// Number of accepted clients whose messages are remembered.
const REMEMBERED: usize = 4096;

/// Remembers the message of an accepted client. Returns `false` if it had come before: it is a
/// recording, because each client has an ephemeral key of its own. Whoever sends it cannot read the
/// reply, and would keep a connection pending until the server has waited for a request in vain.
fn is_new(message: &[u8; MESSAGE_LEN]) -> bool {
    static LATEST: Mutex<VecDeque<[u8; MESSAGE_LEN]>> = Mutex::new(VecDeque::new());
    let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    if latest.contains(message) {
        return false;
    }
    if latest.len() == REMEMBERED {
        latest.pop_front();
    }
    latest.push_back(*message);
    true
}

/// Performs the handshake of a server, which has a token or none. `client` is the greeting that it
/// received.
///
/// # Errors
/// Returns [`Kind::Limit`](base::error::Kind::Limit) if the client does not have the token or
/// repeats the message of another one, and an error if it sends nothing within `timeout`. The
/// client is not notified: see [`reject`].
pub fn accept(
    stream: &TcpStream,
    token: Option<&Token>,
    client: &Hello,
    timeout: Duration,
) -> Result<Keys> {
    let Some(token) = token else {
        return Ok(Keys::none());
    };
    let message = read_message(stream, timeout)?.unwrap_or([0; MESSAGE_LEN]);
    let (reply, keys) = respond(token, client, &message)?;
    if !is_new(&message) {
        return Err(Error::limit(
            "the client repeated the handshake of another connection",
        ));
    }
    write_message(stream, &reply)?;
    Ok(keys)
}

/// Returns a server's reply to the message of a client that sent the greeting `client`, and the
/// keys of the connection.
///
/// # Errors
/// Returns [`Kind::Limit`](base::error::Kind::Limit) if the client does not have the token.
pub fn respond(token: &Token, client: &Hello, message: &[u8]) -> Result<([u8; MESSAGE_LEN], Keys)> {
    let mut state = handshake(token, client, &hello::own(true), false)?;
    state.read(message).map_err(|_| {
        Error::limit("the client's token differs from the server's")
            .with_help("use the same --token-file on both ends")
    })?;
    Ok((next_message(&mut state)?, Keys::new(state)?))
}

/// Notifies a client that [`accept`] rejected.
pub fn reject(mut stream: &TcpStream) {
    let _ = stream.write_all(&[0; 2]);
}

/// Performs the handshake of a client, which has a token or none, with a server that sent a
/// greeting.
///
/// # Errors
/// Returns [`Kind::Limit`](base::error::Kind::Limit) if only one end has a token, or the tokens
/// differ, and an error if the server sends nothing within `timeout`.
pub fn connect(
    stream: &TcpStream,
    server: &Hello,
    token: Option<&Token>,
    timeout: Duration,
) -> Result<Keys> {
    let token = match (token, server.requires_token) {
        (None, false) => return Ok(Keys::none()),
        (Some(_), _) if server.rejects_address => {
            return Err(
                Error::limit("the server does not serve the address of this host")
                    .with_help("add the network of this host to --allow on the server"),
            );
        }
        (Some(_), false) => return Err(unauthenticated("the server requires no token")),
        (None, true) => {
            return Err(Error::limit("the server requires a token")
                .with_help("set --token-file to a file with the server's token"));
        }
        (Some(token), true) => token,
    };
    let mut state = handshake(token, &hello::own(false), server, true)?;
    write_message(stream, &next_message(&mut state)?)?;
    let message = read_message(stream, timeout)?.ok_or_else(|| {
        Error::limit("the server rejected the client: the client's token differs from the server's")
            .with_help("use the same --token-file on both ends")
    })?;
    state.read(&message).map_err(|_| {
        Error::limit("the server does not have the token: it is not the intended server")
    })?;
    Keys::new(state)
}

/// Returns the error of a client with a token whose server does not prove that it has it.
pub(crate) fn unauthenticated(cause: &str) -> Error {
    Error::limit(format!("{cause}, so it may not be the intended server"))
        .with_help("start the server with the same --token-file, or omit it here")
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpListener;

    use base::error::Kind;
    use test_support::text::assert_contains;

    use super::*;
    use crate::protocol::control_stream::ControlStream;

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn token(text: &str) -> Token {
        Token::from_line(text).unwrap()
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// Performs the handshake with these tokens. The client sends the greeting `sent` and gets
    /// `received`.
    fn shake(
        tokens: [Option<&Token>; 2],
        sent: &Hello,
        received: &Hello,
    ) -> [Result<ControlStream>; 2] {
        let (client, server) = pair();
        std::thread::scope(|scope| {
            let server = scope.spawn(move || {
                let keys = accept(&server, tokens[1], sent, TIMEOUT);
                let keys = keys.inspect_err(|_| reject(&server));
                keys.map(|keys| ControlStream::new(server, &keys))
            });
            let keys = connect(&client, received, tokens[0], TIMEOUT);
            let client = keys.map(|keys| ControlStream::new(client, &keys));
            [client, server.join().unwrap()]
        })
    }

    fn protected() -> [ControlStream; 2] {
        let token = token("0123456789abcdef");
        let streams = shake([Some(&token); 2], &hello::own(false), &hello::own(true));
        streams.map(Result::unwrap)
    }

    #[test]
    fn ends_with_the_token_exchange_messages() {
        let [mut client, mut server] = protected();
        // The long one takes several records.
        let messages = [vec![1], vec![2; 200_000], vec![3]];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for message in &messages {
                    client.send_up_to(message, 1 << 20).unwrap();
                }
            });
            for message in &messages {
                let received: Vec<u8> = server.receive_up_to(TIMEOUT, 1 << 20).unwrap();
                assert!(received == *message);
            }
        });
        server.send(&7).unwrap();
        assert_eq!(client.receive::<u32>(TIMEOUT).unwrap(), 7);
    }

    #[test]
    fn ends_with_different_tokens_or_one_reject_each_other() {
        let (a, b) = (token("0123456789abcdef"), token("0123456789abcdeg"));
        let [client, server] = shake([Some(&a), Some(&b)], &hello::own(false), &hello::own(true));
        for result in [client, server] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), Kind::Limit);
            assert!(error.to_string().contains("token differs"), "{error}");
        }
        let (client, _server) = pair();
        let rejection = Hello {
            rejects_address: true,
            ..hello::own(false)
        };
        for (own, server, text) in [
            (
                Some(&a),
                rejection,
                "does not serve the address of this host",
            ),
            (Some(&a), hello::own(false), "the server requires no token"),
            (None, hello::own(true), "the server requires a token"),
        ] {
            let error = connect(&client, &server, own, TIMEOUT).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn a_repeated_handshake_is_rejected() {
        let token = token("0123456789abcdef");
        let (client, server) = pair();
        let mut state = handshake(&token, &hello::own(false), &hello::own(true), true).unwrap();
        let message = next_message(&mut state).unwrap();
        let send = || {
            write_message(&client, &message).unwrap();
            accept(&server, Some(&token), &hello::own(false), TIMEOUT)
        };
        send().unwrap();
        let error = send().unwrap_err();
        assert_eq!(error.kind(), Kind::Limit);
        assert_contains(&error, &["repeated the handshake"]);
    }

    #[test]
    fn greetings_that_were_changed_end_the_handshake() {
        let token = token("0123456789abcdef");
        for index in [9, 11, 12, hello::LEN - 1] {
            let (mut sent, mut received) = (hello::own(false), hello::own(true));
            sent.bytes[index] ^= 1;
            let [_, server] = shake([Some(&token); 2], &sent, &hello::own(true));
            server.unwrap_err();
            received.bytes[index] ^= 1;
            let [client, _] = shake([Some(&token); 2], &hello::own(false), &received);
            client.unwrap_err();
        }
    }

    #[test]
    fn records_that_were_changed_repeated_or_omitted_are_rejected() {
        // The records of two messages, as they are sent.
        let (mut from, to) = pair();
        let [mut client, server] = protected();
        let mut sent = Vec::new();
        for message in ["a message", "another"] {
            client.send(&message).unwrap();
            let mut len = [0; 2];
            server.socket().read_exact(&mut len).unwrap();
            let mut record = vec![0; u16::from_be_bytes(len).into()];
            server.socket().read_exact(&mut record).unwrap();
            sent.push([&len[..], &record].concat());
        }
        let text = String::from_utf8_lossy(&sent[0]);
        assert!(!text.contains("message"), "{text}");
        let (reader, _) = server.split();
        let receive = |records: &[&[u8]]| -> Result<Vec<String>> {
            let mut reader = reader.on(to.try_clone().unwrap());
            from.write_all(&records.concat()).unwrap();
            let received = records.iter().map(|_| reader.receive(Some(TIMEOUT)));
            let received = received.collect();
            // What is left of a rejected record.
            to.set_nonblocking(true).unwrap();
            while !matches!((&to).read(&mut [0; 64]), Err(e) if e.kind() == ErrorKind::WouldBlock) {
            }
            to.set_nonblocking(false).unwrap();
            received
        };
        let mut receive = receive;
        assert_eq!(
            receive(&[&sent[0], &sent[1]]).unwrap(),
            ["a message", "another"]
        );
        for records in [[&sent[0], &sent[0]], [&sent[1], &sent[0]]] {
            let records = records.map(Vec::as_slice);
            assert_eq!(receive(&records).unwrap_err().kind(), Kind::Protocol);
        }
        for index in 2..sent[0].len() {
            let mut changed = sent[0].clone();
            changed[index] ^= 0x40;
            let error = receive(&[&changed]).unwrap_err();
            assert!(error.to_string().contains("was changed"), "{error}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]
        #[test]
        fn a_server_admits_no_client_that_sends_random_bytes(bytes: Vec<u8>) {
            let (mut client, server) = pair();
            let token = token("0123456789abcdef");
            client.write_all(&u16::try_from(MESSAGE_LEN).unwrap().to_be_bytes()).unwrap();
            client.write_all(&bytes).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            proptest::prop_assert!(accept(&server, Some(&token), &hello::own(false), TIMEOUT).is_err());
        }
    }
}
