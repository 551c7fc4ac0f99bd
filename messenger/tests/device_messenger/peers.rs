//! Messengers whose peer violates the protocol, is killed, or is no messenger.

use std::io;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{Context, Direction, ErrorKind, wr};
use messenger::{GroupOptions, Messenger, MessengerGroup, MessengerOptions};
use rdmacm::{ConnectError, ConnectParams, Resolver};
use test_support::hostile::{Connection, Messages, ROOM, Target, assert_limits};
use test_support::process;
use test_support::random::Random;

use crate::lab::{self, Peer, TIMEOUT, assert_no_leaks, connect, one_endpoint_each};

const MAX_LEN: u32 = 100;

fn options() -> MessengerOptions<'static> {
    MessengerOptions::new().max_len(MAX_LEN as usize).depth(4)
}

/// A greeting: version, length of each receive, number of receives, maximum length of a message.
fn greeting(version: u16, receive_len: u32, receives: u32, max_len: u32) -> Vec<u8> {
    let mut bytes = b"RDMAmsgr".to_vec();
    bytes.extend(version.to_be_bytes());
    bytes.extend([0; 2]);
    for number in [receive_len, receives, max_len, 0, 0] {
        bytes.extend(number.to_be_bytes());
    }
    bytes
}

/// A message: kind and flags, the five numbers of its header, and the payload.
fn message(kind: u8, flags: u8, numbers: [u32; 5], payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, flags, 0, 0];
    bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    bytes.extend(payload);
    bytes
}

/// A valid data message with this number.
fn data(number: u32) -> Vec<u8> {
    message(1, 0, [number, 1, 4, 2, 0], b"ok")
}

/// Waits until the messenger has answered the first message, or has disconnected.
fn wait_for_answer(peer: &mut Peer) {
    peer.wait_for_effect(|peer, time| {
        let received = peer.retire_within(time);
        let is_answered = received.is_some_and(|received| received.direction() == Direction::Recv);
        let event = peer.connection.wait_event(Some(Duration::ZERO));
        (is_answered || event.expect("wait").is_some()).then_some(())
    });
}

/// Connects a peer that sends these messages, and returns what the messenger received before its
/// error.
fn attack(endpoint: &lab::Endpoint, messages: &[Vec<u8>]) -> (usize, ibverbs::Error) {
    let listener = endpoint.listen();
    let address = listener.local_addr();
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut peer: Peer = connect(address, endpoint.resources(), b"");
            for _ in 0..8 {
                peer.receive();
            }
            for (number, message) in messages.iter().enumerate() {
                let mut buf = peer.resources.pd.buf(64).expect("memory");
                buf.set_len(message.len());
                buf.copy_from_slice(message);
                // The messenger may have disconnected already.
                let _ = peer.connection.qp_mut().post_send(wr::send(buf));
                if number == 0 {
                    // The next messages acknowledge the greeting of the messenger.
                    wait_for_answer(&mut peer);
                }
            }
            peer
        });
        let request = listener
            .next_request(Some(TIMEOUT))
            .expect("accept")
            .expect("a request in time");
        let accepted = Messenger::accept(request, &options(), Duration::from_secs(2));
        let outcome = match accepted {
            Err(error) => (0, ConnectError::into(error)),
            Ok(mut server) => {
                let mut count = 0;
                let error = loop {
                    match server.recv(TIMEOUT) {
                        Ok(Some(message)) => assert_eq!(message[..], *b"ok"),
                        Ok(None) => panic!("a clean end"),
                        Err(error) => break error,
                    }
                    count += 1;
                };
                let again = server.recv(TIMEOUT).expect_err("the same error");
                assert_eq!(again.to_string(), error.to_string());
                assert!(server.send(b"x", TIMEOUT).is_err());
                (count, error)
            }
        };
        drop(client.join().expect("client"));
        outcome
    })
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn violations_of_the_protocol_are_errors() {
    let hello = || greeting(1, 124, 10, 100);
    let header = |numbers| message(1, 0, numbers, b"ok");
    let after = |count: usize, last: Vec<u8>| {
        let valid = (1..=count).map(|number| data(u32::try_from(number).expect("a number")));
        (count, [vec![hello()], valid.collect(), vec![last]].concat())
    };
    let cases = [
        (0, vec![b"GET / HTTP/1.1\r\n".to_vec()]),
        (0, vec![vec![0; 64]]),
        (0, vec![greeting(2, 124, 10, 100)]),
        (0, vec![greeting(1, 124, 6, 100)]),
        (0, vec![greeting(1, 124, u32::MAX, 100)]),
        (0, vec![greeting(1, 3, 10, 100)]),
        after(0, hello()),
        after(1, vec![]),
        after(1, vec![7; 23]),
        after(2, vec![0xff; 60]),
        after(1, data(3)),
        after(1, data(1)),
        // More acknowledged than sent, more credits than receives, and credits taken back.
        after(1, header([2, 9, 4, 2, 0])),
        after(1, header([2, 1, 5, 2, 0])),
        after(1, header([2, 1, u32::MAX, 2, 0])),
        after(1, header([2, 1, 3, 2, 0])),
        // Lengths that contradict the message, and messages beyond `max_len`.
        after(1, header([2, 1, 4, 3, 0])),
        after(1, header([2, 1, 4, u32::MAX, 0])),
        after(1, header([2, 1, 4, 2, MAX_LEN - 1])),
        after(1, header([2, 1, 4, 2, u32::MAX])),
        after(1, message(1, 0, [2, 1, 4, 0, 5], b"")),
        // A control message with a payload, and unknown flags.
        after(1, message(2, 0, [2, 1, 4, 2, 0], b"ok")),
        after(1, message(2, 0x80, [2, 1, 4, 0, 0], b"")),
    ];
    for endpoint in one_endpoint_each() {
        assert_no_leaks(&endpoint, || {
            for (expected, messages) in &cases {
                let (count, error) = attack(&endpoint, messages);
                assert_eq!(error.kind(), ErrorKind::Malformed, "{messages:?}: {error}");
                assert!(error.to_string().contains("protocol"), "{error}");
                assert_eq!(count, *expected, "{messages:?}: {error}");
            }
            // Fragments that exceed the length announced by the first, and data after the end.
            let fragment = |number, remaining| header([number, 1, 4, 2, remaining]);
            for last in [fragment(2, 9), fragment(2, 0), data(2)] {
                let messages = [hello(), fragment(1, 10), last];
                let (count, error) = attack(&endpoint, &messages);
                assert_eq!((count, error.kind()), (0, ErrorKind::Malformed), "{error}");
            }
        });
    }
}

/// Returns a message after the greeting whose fields are random, most of them nearly valid.
fn random_message(random: &mut Random, number: u32) -> Vec<u8> {
    let mut field = |valid: u32| match random.below(8) {
        0 => u32::MAX,
        1 => 0,
        2 => valid.wrapping_add(1),
        3 => valid.wrapping_sub(1),
        _ => valid,
    };
    let numbers = [field(number), field(1), field(4), field(2), field(0)];
    let kind = [1, 1, 1, 2, 7][random.below(5)];
    let flags = [0, 0, 0, 1, 2, 3, 0x80][random.below(7)];
    let mut bytes = message(kind, flags, numbers, b"ok");
    bytes.truncate([bytes.len(), bytes.len(), 24, random.below(26)][random.below(4)]);
    bytes
}

/// All members of a group send random messages, again and again. None of them takes anything from
/// the group, which then serves messengers. `MESSENGER_MANY` multiplies the number of rounds.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_group_outlives_random_messages_of_all_members() {
    const MEMBERS: u16 = 4;
    let rounds = std::env::var("MESSENGER_MANY").map_or(1, |n| n.parse().expect("a number"));
    for endpoint in &one_endpoint_each() {
        assert_no_leaks(endpoint, || {
            let pd = endpoint.context.alloc_pd().expect("protection domain");
            let group_options = GroupOptions::new().connections(MEMBERS).depth(4);
            let group_options = group_options.max_len(MAX_LEN as usize);
            let group = MessengerGroup::new(&pd, &group_options).expect("group");
            let in_group = MessengerOptions::new().group(&group);
            let listener = endpoint.listen();
            let address = listener.local_addr();
            let next = || {
                let request = listener.next_request(Some(TIMEOUT)).expect("accept");
                request.expect("a request in time")
            };
            let mut random = Random::new(0x5eed);
            let mut errors = 0;
            for _ in 0..8 * rounds {
                let messages: Vec<Vec<Vec<u8>>> = (0..MEMBERS)
                    .map(|_| {
                        (1..=3)
                            .map(|number| random_message(&mut random, number))
                            .collect()
                    })
                    .collect();
                thread::scope(|scope| {
                    let members = messages.iter().map(|messages| {
                        let peer = scope.spawn(move || {
                            let mut peer: Peer = connect(address, endpoint.resources(), b"");
                            for _ in 0..8 {
                                peer.receive();
                            }
                            let hello = greeting(1, 124, 10, MAX_LEN);
                            for (number, message) in
                                [&hello].into_iter().chain(messages).enumerate()
                            {
                                let mut buf = peer.resources.pd.buf(64).expect("memory");
                                buf.set_len(message.len());
                                buf.copy_from_slice(message);
                                // The messenger may have disconnected already.
                                let _ = peer.connection.qp_mut().post_send(wr::send(buf));
                                if number == 0 {
                                    wait_for_answer(&mut peer);
                                }
                            }
                            peer
                        });
                        let server = Messenger::accept(next(), &in_group, TIMEOUT);
                        (peer, server.expect("a valid greeting"))
                    });
                    let members: Vec<_> = members.collect();
                    assert_eq!(group.connections(), usize::from(MEMBERS));
                    for (peer, mut server) in members {
                        let peer = peer.join().expect("peer");
                        // A message of no effect leaves the messenger waiting.
                        while let Ok(Some(_)) = server.recv(Duration::from_millis(100)) {}
                        errors += u32::from(server.send(b"x", Duration::from_millis(100)).is_err());
                        drop((peer, server));
                    }
                });
                assert_eq!(group.connections(), 0);
            }
            println!(
                "{}: {errors} of {} connections failed",
                endpoint.name(),
                32 * rounds
            );
            assert!(errors > 0);
            thread::scope(|scope| {
                let client = scope.spawn(|| {
                    let mut client = Messenger::connect(address, &options(), TIMEOUT)?;
                    client.send(b"hello", TIMEOUT)?;
                    client.shutdown(TIMEOUT).map_err(ConnectError::from)?;
                    Ok::<_, ConnectError>(client)
                });
                let mut server = Messenger::accept(next(), &in_group, TIMEOUT).expect("accept");
                let message = server.recv(TIMEOUT).expect("receive").expect("a message");
                assert_eq!(message[..], *b"hello");
                drop(message);
                // The messenger acknowledges only while a call waits.
                assert!(server.recv(TIMEOUT).expect("the end").is_none());
                drop(client.join().expect("client").expect("shutdown"));
            });
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_peer_that_is_no_messenger_times_out() {
    for endpoint in one_endpoint_each() {
        let listener = endpoint.listen();
        let address = listener.local_addr();
        thread::scope(|scope| {
            let client = scope.spawn(|| connect(address, endpoint.resources(), b""));
            let request = listener
                .next_request(Some(TIMEOUT))
                .expect("accept")
                .expect("a request in time");
            let started = Instant::now();
            let error = Messenger::accept(request, &options(), Duration::from_millis(500))
                .map(drop)
                .expect_err("no greeting");
            assert_eq!(error.error().kind(), ErrorKind::TimedOut, "{error}");
            assert!(started.elapsed() < Duration::from_secs(10));
            drop(client.join().expect("client"));
        });
    }
}

/// Connects, sends and receives until it is killed. Does nothing unless another test starts it.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn client_process() {
    let Ok(address) = std::env::var("MESSENGER_SERVER") else {
        test_support::lab::report_no_device("the client of another test");
        return;
    };
    let address = address.parse().expect("an address");
    let mut client = Messenger::connect(address, &options(), TIMEOUT).expect("connect");
    loop {
        client.send(b"message", TIMEOUT).expect("send");
        client.flush(TIMEOUT).expect("flush");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_killed_peer_is_an_error_of_each_call() {
    for endpoint in one_endpoint_each() {
        let listener = endpoint.listen();
        for is_receiving in [true, false] {
            let mut child = process::ignored_test("peers::client_process")
                .env("MESSENGER_SERVER", listener.local_addr().to_string())
                .stdout(Stdio::null())
                .spawn()
                .expect("start");
            let request = listener
                .next_request(Some(TIMEOUT))
                .expect("accept")
                .expect("a request in time");
            let mut server = Messenger::accept(request, &options(), TIMEOUT).expect("accept");
            for _ in 0..10 {
                let message = server.recv(TIMEOUT).expect("receive").expect("a message");
                assert_eq!(message[..], *b"message");
            }
            child.kill().expect("kill");
            child.wait().expect("wait");
            let error = if is_receiving {
                loop {
                    match server.recv(TIMEOUT) {
                        Ok(Some(_)) => {}
                        Ok(None) => panic!("a clean end"),
                        Err(error) => break error,
                    }
                }
            } else {
                // The kernel acknowledges nothing in the place of the peer's library.
                server
                    .send(b"reply", TIMEOUT)
                    .and_then(|()| server.flush(TIMEOUT))
                    .expect_err("the peer is gone")
            };
            assert!(
                matches!(
                    error.kind(),
                    ErrorKind::Disconnected | ErrorKind::Completion
                ),
                "{error}"
            );
            println!("{}: {error}", endpoint.name());
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_message_longer_than_a_receive_ends_the_connection() {
    for endpoint in one_endpoint_each() {
        let listener = endpoint.listen();
        let address = listener.local_addr();
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                let mut peer = connect(address, endpoint.resources(), b"");
                peer.receive();
                peer.send(&greeting(1, 124, 10, 100));
                let long = peer.resources.pd.buf(5000).expect("memory");
                let _ = peer.connection.qp_mut().post_send(wr::send(long));
                peer
            });
            let request = listener
                .next_request(Some(TIMEOUT))
                .expect("accept")
                .expect("a request in time");
            let error = Messenger::accept(request, &options(), TIMEOUT)
                .map_err(ibverbs::Error::from)
                .and_then(|mut server| server.recv(Duration::from_secs(5)).map(drop))
                .expect_err("too long");
            assert_ne!(error.kind(), ErrorKind::TimedOut, "{error}");
            drop(client.join().expect("client"));
        });
    }
}

/// A server that sends each message back.
struct EchoServer<'a> {
    address: SocketAddr,
    context: &'a Context,
    messages: Messages,
}

/// A hostile peer of an [`EchoServer`].
struct HostilePeer(Peer);

impl HostilePeer {
    /// Takes all completions, and returns the number of messages that have arrived.
    fn retire(&mut self) -> usize {
        let retired = std::iter::from_fn(|| self.0.retire_within(Duration::ZERO));
        retired
            .filter(|retired| retired.direction() == Direction::Recv)
            .count()
    }
}

impl Connection for HostilePeer {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let begin = Instant::now();
        loop {
            self.retire();
            let qp = self.0.connection.qp_mut();
            if qp.send_slots_free() > 0 {
                let mut buf = qp.pd().buf(bytes.len()).map_err(io::Error::other)?;
                buf.copy_from_slice(bytes);
                let posted = qp.post_send(wr::send(buf));
                return posted.map_err(|_| io::ErrorKind::BrokenPipe.into());
            }
            if begin.elapsed() > ROOM {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            thread::yield_now();
        }
    }

    fn receive(&mut self, time: Duration) -> io::Result<()> {
        let begin = Instant::now();
        loop {
            for _ in 0..self.retire() {
                let qp = self.0.connection.qp_mut();
                let buf = qp.pd().buf(64).map_err(io::Error::other)?;
                let posted = qp.post_recv(wr::recv(buf));
                posted.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            }
            let _ = self.0.connection.wait_event(Some(Duration::ZERO));
            if self.0.connection.is_disconnected() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if begin.elapsed() >= time {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Target for EchoServer<'_> {
    fn messages(&self) -> &Messages {
        &self.messages
    }

    fn connect(&self, _: u64) -> io::Result<Box<dyn Connection + '_>> {
        let resources = lab::Resources::new(self.context);
        let route = Resolver::new(self.address).timeout(TIMEOUT).resolve();
        let ready = route.map_err(io::Error::other)?.with_qp(resources.qp());
        let mut ready = ready.map_err(io::Error::other)?;
        for _ in 0..8 {
            resources.receive_on(ready.qp_mut());
        }
        let connection = ready.connect(&ConnectParams::default(), TIMEOUT);
        let connection = connection.map_err(io::Error::other)?;
        Ok(Box::new(HostilePeer(Peer {
            connection,
            resources,
        })))
    }

    fn serve(&self) -> Result<(), String> {
        let text = |error: ibverbs::Error| error.to_string();
        let client = Messenger::connect(self.address, &options(), TIMEOUT);
        let mut client = client.map_err(|error| error.to_string())?;
        client.send(b"ok", TIMEOUT).map_err(text)?;
        let echo = client.recv(TIMEOUT).map_err(text)?;
        assert_eq!(echo.as_deref(), Some(&b"ok"[..]));
        client.shutdown(TIMEOUT).map_err(text)
    }
}

/// A valid control message with this number.
fn control(number: u32) -> Vec<u8> {
    message(2, 0, [number, 1, 4, 0, 0], b"")
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_messenger_keeps_its_limits() {
    /// Time limit of a peer that sends nothing.
    const SILENCE: Duration = Duration::from_secs(5);
    for endpoint in &one_endpoint_each() {
        assert_no_leaks(endpoint, || {
            let listener = endpoint.listen();
            let stop = AtomicBool::new(false);
            let target = EchoServer {
                address: listener.local_addr(),
                context: &endpoint.context,
                messages: Messages {
                    session: vec![greeting(1, 124, 10, 100), data(1), data(2), control(3)],
                    smallest: |number| control(number + 1),
                    longest: vec![0x5a; 4096],
                    before: 1,
                },
            };
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let request = listener.next_request(Some(Duration::from_millis(100)));
                        let Some(request) = request.expect("a listener") else {
                            continue;
                        };
                        scope.spawn(|| {
                            let accepted = Messenger::accept(request, &options(), SILENCE);
                            let Ok(mut server) = accepted else { return };
                            while let Ok(Some(message)) = server.recv(SILENCE) {
                                if server.send(&message, SILENCE).is_err() {
                                    break;
                                }
                            }
                        });
                    }
                });
                // A failed assertion must stop the server, because the scope waits for its thread.
                let attack = || assert_limits("messenger", &target);
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(attack));
                stop.store(true, Ordering::Relaxed);
                outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            });
        });
    }
}
