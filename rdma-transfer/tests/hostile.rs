//! An engine against the hostile peers of [`test_support::hostile`], on the fake provider.

mod common;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use fake_provider::{Fake, Profile};
use rdma_transfer::{Engine, EngineOptions, Peer, Region, Span, StreamControl, Token};
use test_support::hostile::{Connection, Messages, Target, assert_limits, divide};

use common::{filled, imm, wait_ready};

/// Time limit of an honest peer.
const LIMIT: Duration = Duration::from_secs(60);

/// An engine with an honest peer.
struct AttackedEngine<'a> {
    engine: Engine,
    token: Option<&'a Token>,
    messages: Messages,
    /// The attacked engine as the honest one sees it, and the memory of a transfer.
    honest: Mutex<(Peer, Region, Region)>,
    _honest: Peer,
}

/// A hostile peer, and what the engine knows of it.
struct HostilePeer {
    stream: UnixStream,
    _peer: Peer,
}

impl Connection for HostilePeer {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.send(bytes)
    }

    fn receive(&mut self, time: Duration) -> io::Result<()> {
        self.stream.receive(time)
    }

    fn finish(&mut self) {
        self.stream.finish();
    }
}

/// Connects an engine over a stream.
fn connect(engine: &Engine, stream: UnixStream, token: Option<&Token>, initiates: bool) -> Peer {
    let control = match token {
        Some(token) if initiates => StreamControl::initiator(stream, token),
        Some(token) => StreamControl::responder(stream, token),
        None => StreamControl::new(stream),
    };
    let connected = engine.connect(control.expect("non-blocking"));
    connected.expect("connects")
}

impl Target for AttackedEngine<'_> {
    fn messages(&self) -> &Messages {
        &self.messages
    }

    fn connect(&self, _: u64) -> io::Result<Box<dyn Connection + '_>> {
        let (stream, theirs) = UnixStream::pair()?;
        stream.set_nonblocking(true)?;
        let peer = connect(&self.engine, theirs, self.token, false);
        Ok(Box::new(HostilePeer {
            stream,
            _peer: peer,
        }))
    }

    fn serve(&self) -> Result<(), String> {
        let honest = self.honest.lock().expect("not poisoned");
        let (peer, source, target) = &*honest;
        let span = [Span::new(0, 0, target.len())];
        let transfer = peer.write(source, &target.remote(), &span, imm(1));
        let written = transfer.and_then(|transfer| transfer.wait(LIMIT));
        written.map_err(|error| error.to_string())
    }
}

/// Returns what an engine sends to another one during a session: it connects, offers a region and
/// writes to the memory of the other one.
fn record(engines: [&Engine; 2], token: Option<&Token>) -> Vec<u8> {
    let (of_a, near) = UnixStream::pair().expect("sockets");
    let (of_b, far) = UnixStream::pair().expect("sockets");
    let mut recorded = Vec::new();
    let (mut up, mut down) = (
        near.try_clone().expect("a socket"),
        far.try_clone().expect("a socket"),
    );
    thread::scope(|scope| {
        scope.spawn(move || {
            let _ = io::copy(&mut &far, &mut &near);
        });
        let recorded = &mut recorded;
        scope.spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = up.read(&mut bytes) {
                recorded.extend(&bytes[..len]);
                if down.write_all(&bytes[..len]).is_err() {
                    break;
                }
            }
            let _ = down.shutdown(std::net::Shutdown::Both);
        });
        let [a, b] = engines;
        let to_b = connect(a, of_a, token, true);
        let to_a = connect(b, of_b, token, false);
        let region = filled(a, 4096, 1);
        to_b.offer("region", &region).expect("offered");
        let target = b.alloc(4096).expect("region");
        to_a.offer("target", &target).expect("offered");
        let remote = to_b.remote("target", LIMIT).expect("offered");
        let write = to_b.write(&region, &remote, &[Span::new(0, 0, 4096)], imm(2));
        write.expect("posted").wait(LIMIT).expect("written");
        drop(to_b);
    });
    recorded
}

fn attack(protocol: &str, token: Option<&Token>, split: impl Fn(&[u8]) -> Messages) {
    let fake = Fake::new(Profile::RXE);
    let [engine, other] =
        [(); 2].map(|()| Engine::open(&[fake.name()], EngineOptions::new()).expect("engine"));
    let messages = split(&record([&other, &engine], token));
    assert!(messages.session.len() > 2, "{messages:?}");
    let (of_engine, of_other) = UnixStream::pair().expect("sockets");
    let honest_peer = connect(&engine, of_engine, token, false);
    let peer = connect(&other, of_other, token, true);
    wait_ready(&peer);
    let memory = (filled(&other, 4096, 1), engine.alloc(4096).expect("region"));
    let target = AttackedEngine {
        engine,
        token,
        messages,
        honest: Mutex::new((peer, memory.0, memory.1)),
        _honest: honest_peer,
    };
    assert_limits(protocol, &target);
}

fn frame(message: &[u8]) -> Vec<u8> {
    let len = u32::try_from(message.len()).expect("fits");
    [&len.to_le_bytes(), message].concat()
}

#[test]
fn an_engine_keeps_its_limits() {
    attack("rdma-transfer", None, |recorded| {
        let len = |bytes: &[u8]| {
            let len = bytes.first_chunk().map(|len| u32::from_le_bytes(*len));
            4 + len.map_or(0, |len| len as usize)
        };
        let start = br#"{"Settled":{"path":0,"epoch":0,"known":{"jobs":[],"regions":["#;
        let end = b"1]}}}";
        let numbers = b"1,".repeat(((512 << 10) - start.len() - end.len()) / 2);
        Messages {
            session: divide(recorded, 0, len),
            smallest: |number| {
                let message = format!(r#"{{"Abandoned":{{"transfer":{}}}}}"#, 2 * number);
                frame(message.as_bytes())
            },
            longest: frame(&[start, &numbers[..], end].concat()),
            before: 1,
        }
    });
}

#[test]
fn an_engine_with_a_token_keeps_its_limits() {
    let token = Token::new(b"0123456789abcdef").expect("long enough");
    // A peer without the token has a recording of another one only.
    attack("rdma-transfer with a token", Some(&token), |recorded| {
        let len = |bytes: &[u8]| {
            let len = bytes.first_chunk().map(|len| u16::from_be_bytes(*len));
            2 + len.map_or(0, usize::from)
        };
        Messages {
            session: divide(recorded, 0, len),
            smallest: |_| vec![0, 0],
            longest: vec![0xff; 2 + usize::from(u16::MAX)],
            before: 1,
        }
    });
}
