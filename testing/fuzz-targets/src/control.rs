//! rperf's control protocol.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use base::error::Result;
use host::peer::PeerFacts;
use measure::spec::{Footprint, Spec};
use session::protocol::control_stream::{ControlStream, Keys};
use session::protocol::frame::{self, MAX_FACTS_LEN};
use session::protocol::handshake;
use session::protocol::hello::{self, Peer};
use session::protocol::token::Token;
use session::rperf::message::Message;
use session::rperf::rules::Rules;

use crate::{assert_printable, assert_same_json};

/// Frames: those of a session, and of the facts of a host.
pub fn control_frame(data: &[u8]) {
    let mut stream = data;
    loop {
        match frame::read::<Message>(&mut stream) {
            Ok(message) => check_message(&message),
            Err(error) => {
                assert_printable(&error.to_string());
                break;
            }
        }
    }
    // Most inputs are not framed.
    let mut framed = u32::try_from(data.len())
        .unwrap_or(u32::MAX)
        .to_be_bytes()
        .to_vec();
    framed.extend(data);
    match frame::read_up_to::<Message>(&mut framed.as_slice(), MAX_FACTS_LEN) {
        Ok(message) => check_message(&message),
        Err(error) => assert_printable(&error.to_string()),
    }
}

fn check_message(message: &Message) {
    let mut bytes = Vec::new();
    frame::write_up_to(&mut bytes, message, MAX_FACTS_LEN).expect("a message can be written");
    let text = std::str::from_utf8(&bytes[4..]).expect("JSON is UTF-8");
    assert_printable(text);
    let again: Message = frame::read_up_to(&mut bytes.as_slice(), MAX_FACTS_LEN)
        .expect("a written message can be read");
    assert_same_json(text, &serde_json::to_string(&again).expect("JSON"));
    assert_printable(&message.unexpected("the peer").to_string());
    match message {
        Message::Request { spec, .. } => check_spec(spec),
        Message::RunClient(request) => check_spec(&request.spec),
        _ => {}
    }
}

/// A server computes the resources of every requested test.
pub(super) fn check_spec(spec: &Spec) {
    if let Err(error) = spec.check() {
        assert_printable(&error.to_string());
        return;
    }
    let Footprint { memory, .. } = spec.footprint();
    assert!(memory > 0);
    let rules = Rules::default();
    let _ = rules.max_test_time(spec);
    match rules.admit(spec) {
        Ok(reserved) => drop(reserved),
        Err(error) => assert_printable(&error.to_string()),
    }
}

/// A token, whose key is derived only once, because that is slow.
static TOKEN: OnceLock<Token> = OnceLock::new();

/// The greeting, and the handshake of a server with a token.
pub fn control_hello(data: &[u8]) {
    let decoded = hello::decode(data);
    if let Peer::Rperf(peer) = &decoded {
        assert_printable(&peer.version);
        if let Err(error) = hello::check(peer, "the server") {
            assert_printable(&error.to_string());
        }
        let Peer::Rperf(own) = hello::decode(&hello::encode(peer.protocol)) else {
            panic!("the own greeting is not recognized");
        };
        assert_eq!(own.protocol, peer.protocol);
    }
    let _ = hello::decode_reply(data);
    let greetings = [hello::read(&mut &*data), hello::read_reply(&mut &*data)];
    for peer in greetings.into_iter().flatten() {
        if let Peer::Rperf(peer) = peer {
            assert_printable(&peer.version);
        }
    }
    let token = TOKEN.get_or_init(|| Token::from_line("0123456789abcdef").expect("a token"));
    let Peer::Rperf(client) = hello::decode(&hello::encode(hello::PROTOCOL)) else {
        panic!("the own greeting is not recognized");
    };
    assert!(handshake::respond(token, &client, data).is_err());
}

/// Messages in the records that [`control_records`] changes.
const MESSAGES: [u32; 3] = [1, 20, 300];
/// Maximum number of bytes of changed records. A socket buffers them.
const MAX_RECORDS: usize = 32 << 10;

/// The client's keys of a protected connection, and the records of [`MESSAGES`] from the server.
static RECORDS: LazyLock<(Keys, Vec<Vec<u8>>)> = LazyLock::new(|| {
    let token = TOKEN.get_or_init(|| Token::from_line("0123456789abcdef").expect("a token"));
    let timeout = Duration::from_secs(60);
    let [client, server] = sockets();
    let keys = std::thread::scope(|scope| {
        let accept = || handshake::accept(&server, Some(token), &hello::own(false), timeout);
        let server = scope.spawn(accept);
        let client = handshake::connect(&client, &hello::own(true), Some(token), timeout);
        [client, server.join().expect("no panic")].map(|keys| keys.expect("the same token"))
    });
    let mut sender = ControlStream::new(server, &keys[1]);
    let records = MESSAGES.map(|message| {
        sender.send(&message).expect("buffered");
        let mut record = vec![0; 2];
        (&client).read_exact(&mut record).expect("a length");
        record.resize(
            2 + usize::from(u16::from_be_bytes([record[0], record[1]])),
            0,
        );
        (&client).read_exact(&mut record[2..]).expect("a record");
        record
    });
    let [client, _] = keys;
    (client, records.into())
});

/// Returns connected sockets. Unix sockets need no ports.
fn sockets() -> [TcpStream; 2] {
    let (a, b) = UnixStream::pair().expect("sockets");
    [a, b].map(|socket| TcpStream::from(OwnedFd::from(socket)))
}

/// Records of a protected connection that are changed, repeated, omitted, cut or made up. A reader
/// returns the messages before the first change, and nothing else.
pub fn control_records(data: &[u8]) {
    let (keys, records) = &*RECORDS;
    let mut sent = Vec::new();
    let mut bytes = data.iter().copied();
    while let Some(action) = bytes.next().filter(|_| sent.len() < MAX_RECORDS) {
        match action {
            0x00..0x80 => sent.extend(&records[usize::from(action) % records.len()]),
            0x80..0xc0 => {
                let at = bytes.next().map_or(0, usize::from);
                if let Some(byte) = sent.iter_mut().rev().nth(at) {
                    *byte ^= 1 << (action % 8);
                }
            }
            0xc0..0xe0 => sent.truncate(sent.len().saturating_sub(usize::from(action - 0xbf))),
            0xe0.. => sent.extend(bytes.by_ref().take(usize::from(action - 0xdf))),
        }
    }
    let [mut from, to] = sockets();
    from.write_all(&sent).expect("buffered");
    from.shutdown(Shutdown::Write).expect("connected");
    let mut reader = ControlStream::new(to, keys);
    let mut received = Vec::new();
    loop {
        match reader.receive::<u32>(Duration::from_secs(60)) {
            Ok(message) => received.push(message),
            Err(error) => break assert_printable(&error.to_string()),
        }
    }
    assert!(MESSAGES.starts_with(&received), "{received:?}");
    let unchanged = (0..=MESSAGES.len()).rev();
    let mut unchanged = unchanged.filter(|count| sent.starts_with(&records[..*count].concat()));
    assert_eq!(unchanged.next(), Some(received.len()), "{sent:x?}");
}

/// The facts of a peer: what passes the validation is safe in text and in commands.
pub fn peer_facts(data: &[u8]) {
    let mut framed = u32::try_from(data.len())
        .unwrap_or(u32::MAX)
        .to_be_bytes()
        .to_vec();
    framed.extend(data);
    let facts: Result<PeerFacts> = frame::read_up_to(&mut framed.as_slice(), MAX_FACTS_LEN);
    match facts.and_then(PeerFacts::validated) {
        Ok(facts) => super::configuration::check_with_peer(facts),
        Err(error) => assert_printable(&error.to_string()),
    }
}
