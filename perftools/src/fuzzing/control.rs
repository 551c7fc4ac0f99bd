//! rperf's control protocol.

use std::sync::OnceLock;

use base::error::Result;
use host::peer::PeerFacts;
use measure::spec::{Footprint, Spec};
use session::protocol::frame::{self, MAX_FACTS_LEN};
use session::protocol::handshake;
use session::protocol::hello::{self, Peer};
use session::protocol::token::Token;
use session::rperf::message::Message;
use session::rperf::rules::Rules;

use super::{assert_printable, assert_same_json};

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
