//! Engines that connect over TCP, on the fake provider.

use std::net::TcpListener;
use std::time::Duration;

use fake_provider::{Fake, Profile};
use rdma_transfer::{Engine, EngineOptions, ErrorKind, Span, Token};

use crate::common::{SOON, bytes, filled, imm, pattern};

fn engine(fake: &Fake) -> Engine {
    Engine::open(&[fake.name()], EngineOptions::new()).expect("engine")
}

#[test]
fn engines_connect_over_tcp_and_find_regions_by_name() {
    let fake = Fake::new(Profile::RXE);
    let [a, b] = [(); 2].map(|()| engine(&fake));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    let token = Token::new(b"0123456789abcdef").expect("long enough");
    let (dialed, accepted) = std::thread::scope(|scope| {
        let accepted = scope.spawn(|| b.accept(&listener, &token));
        let dialed = a.dial(at, &token).expect("connects");
        (dialed, accepted.join().expect("no panic").expect("accepts"))
    });
    let (first, second) = (b.alloc(100).expect("region"), b.alloc(100).expect("region"));
    let error = dialed
        .remote("target", Duration::ZERO)
        .expect_err("no such region");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    accepted.offer("target", &first).expect("offered");
    assert_eq!(
        dialed.remote("target", SOON).expect("offered"),
        first.remote()
    );
    accepted.offer("target", &second).expect("offered again");
    let longest = "n".repeat(256);
    accepted.offer(&longest, &first).expect("offered");
    dialed.remote(&longest, SOON).expect("offered");
    let remote = dialed.remote("target", SOON).expect("offered");
    assert_eq!(remote, second.remote());
    let write = dialed.write(
        &filled(&a, 100, 1),
        &remote,
        &[Span::new(0, 0, 100)],
        imm(7),
    );
    write.expect("write").wait(SOON).expect("written");
    b.imm_counter(7).wait(1, SOON).expect("arrived");
    assert_eq!(bytes(&second), pattern(100, 1));
    let error = accepted
        .offer(&"n".repeat(257), &first)
        .expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    drop(accepted);
    let error = dialed.remote("more", SOON).expect_err("the peer is gone");
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
}

#[test]
fn engines_with_other_tokens_do_not_connect() {
    let fake = Fake::new(Profile::RXE);
    let [a, b] = [(); 2].map(|()| engine(&fake));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    let [token, other] = ["0123456789abcdef", "0123456789abcdeg"]
        .map(|secret| Token::new(secret.as_bytes()).expect("long enough"));
    let region = b.alloc(64).expect("region");
    for (dials, accepts) in [
        (Some(&token), Some(&other)),
        (Some(&token), None),
        (None, Some(&token)),
    ] {
        let dialed = match dials {
            Some(token) => a.dial(at, token),
            None => a.dial_unauthenticated(at),
        };
        let accepted = match accepts {
            Some(token) => b.accept(&listener, token),
            None => b.accept_unauthenticated(&listener),
        };
        let peers = [dialed.expect("connects"), accepted.expect("accepts")];
        peers[1].offer("target", &region).expect("queued");
        for peer in &peers {
            let error = peer.remote("target", SOON).expect_err("disconnected");
            assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
        }
    }
}
