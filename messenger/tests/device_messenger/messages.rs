//! Messengers on real drivers: delivery, the end of a stream, and the two sides of a connection.
//!
//! `MESSENGER_MANY` multiplies the number of messages to a slow receiver: 100,000 with
//! `MESSENGER_MANY=50`.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{AccessFlags, ErrorKind, wr};
use messenger::{Message, Messenger, MessengerOptions, TryRecv};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::{EventChannel, ListenOptions};

use crate::lab::{Endpoint, TIMEOUT, assert_no_leaks, one_endpoint_each};

fn options() -> MessengerOptions<'static> {
    MessengerOptions::new().max_len(100).depth(4)
}

/// Runs both sides.
fn run_with(
    endpoint: &Endpoint,
    options: &MessengerOptions<'_>,
    server: impl FnOnce(Messenger) + Send,
    client: impl FnOnce(Messenger),
) {
    assert_no_leaks(endpoint, || {
        let listener = endpoint.listen();
        let address = listener.local_addr();
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let request = listener
                    .next_request(Some(TIMEOUT))
                    .expect("accept")
                    .expect("a request in time");
                server(Messenger::accept(request, options, TIMEOUT).expect("accept"));
            });
            client(Messenger::connect(address, options, TIMEOUT).expect("connect"));
            server.join().expect("server");
        });
    });
}

fn run(endpoint: &Endpoint, server: impl FnOnce(Messenger) + Send, client: impl FnOnce(Messenger)) {
    run_with(endpoint, &options(), server, client);
}

fn next(messenger: &mut Messenger) -> Message {
    messenger
        .recv(TIMEOUT)
        .expect("receive")
        .expect("a message")
}

fn assert_end(messenger: &mut Messenger) {
    for _ in 0..2 {
        let message = messenger.recv(TIMEOUT).expect("the end of the stream");
        assert!(message.is_none(), "{message:?}");
    }
}

fn scaled(count: u32) -> u32 {
    count * std::env::var("MESSENGER_MANY").map_or(1, |factor| factor.parse().expect("a number"))
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messages_are_exchanged_in_order_until_a_shutdown() {
    for endpoint in one_endpoint_each() {
        run(
            &endpoint,
            |mut server| {
                for count in 0..40 {
                    let message = next(&mut server);
                    assert_eq!(message[..], [count; 50]);
                    server.send(&message, TIMEOUT).expect("send");
                }
                assert_end(&mut server);
                // The other direction is still open.
                server.send(b"after the end", TIMEOUT).expect("send");
                server.shutdown(TIMEOUT).expect("shutdown");
            },
            |mut client| {
                for count in 0..40 {
                    client.send(&[count; 50], TIMEOUT).expect("send");
                    if count % 4 == 3 {
                        for echo in count - 3..=count {
                            assert_eq!(next(&mut client)[..], [echo; 50]);
                        }
                    }
                }
                client.shutdown(TIMEOUT).expect("shutdown");
                let error = client.send(b"too late", TIMEOUT).expect_err("shut down");
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
                assert_eq!(next(&mut client)[..], *b"after the end");
                assert_end(&mut client);
            },
        );
    }
}

/// The peer can use a credit at once, and answers what is sent.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn receives_are_posted_before_the_peer_needs_them() {
    let free = |messenger: &mut Messenger| {
        let slots = messenger.with_qp(|qp| qp.recv_slots_free());
        slots.expect("open")
    };
    for (endpoint, copies) in one_endpoint_each()
        .iter()
        .flat_map(|one| [(one, true), (one, false)])
    {
        run(
            endpoint,
            |mut server| {
                let unused = free(&mut server);
                if copies {
                    assert!(server.try_send(b"first").expect("send"));
                } else {
                    let buffer = server.buffer(TIMEOUT).expect("buffer");
                    server.send_buffer(buffer, TIMEOUT).expect("send");
                }
                // Those for the four other control messages of PROTOCOL.md.
                assert_eq!(free(&mut server), unused - 4);
                let message = next(&mut server);
                let kept = free(&mut server);
                drop(message);
                assert_eq!(free(&mut server), kept - 1);
                server.shutdown(TIMEOUT).expect("shutdown");
                assert_end(&mut server);
            },
            |mut client| {
                next(&mut client);
                client.send(b"second", TIMEOUT).expect("send");
                client.shutdown(TIMEOUT).expect("shutdown");
                assert_end(&mut client);
            },
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn no_message_to_a_slow_receiver_is_lost() {
    let count = scaled(2000);
    for endpoint in one_endpoint_each() {
        let started = Instant::now();
        run(
            &endpoint,
            |mut server| {
                thread::sleep(Duration::from_millis(300));
                for number in 0..count {
                    assert_eq!(next(&mut server)[..], number.to_be_bytes(), "{number}");
                    if number % 500 == 0 {
                        thread::sleep(Duration::from_millis(2));
                    }
                }
                assert_end(&mut server);
            },
            |mut client| {
                for number in 0..count {
                    client.send(&number.to_be_bytes(), TIMEOUT).expect("send");
                }
                client.flush(TIMEOUT).expect("flush");
                client.shutdown(TIMEOUT).expect("shutdown");
            },
        );
        println!(
            "{}: {count} messages in {:.1?}",
            endpoint.name(),
            started.elapsed()
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn flush_waits_for_the_peers_messenger() {
    for endpoint in one_endpoint_each() {
        let (idle_tx, idle_rx) = mpsc::channel();
        run(
            &endpoint,
            move |mut server| {
                idle_rx.recv_timeout(TIMEOUT).expect("the client waits");
                // The messenger acknowledges all messages that have arrived when it takes one.
                assert_eq!(next(&mut server)[..], [0]);
                idle_rx.recv_timeout(TIMEOUT).expect("the client waits");
                for number in 1..4 {
                    assert_eq!(next(&mut server)[..], [number]);
                }
                assert_end(&mut server);
            },
            |mut client| {
                client.flush(Duration::ZERO).expect("nothing was sent");
                for number in 0..4 {
                    client.send(&[number], TIMEOUT).expect("send");
                }
                // The messages have long arrived, but the peer's library has not run.
                let error = client
                    .flush(Duration::from_millis(200))
                    .expect_err("not acknowledged");
                assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
                let error = client.send(&[4], Duration::from_millis(50));
                assert_eq!(error.expect_err("no credit").kind(), ErrorKind::TimedOut);
                idle_tx.send(()).expect("the server waits");
                client.flush(TIMEOUT).expect("flush");
                idle_tx.send(()).expect("the server waits");
                client.shutdown(TIMEOUT).expect("shutdown");
            },
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_connection_that_ends_without_shutdown_is_an_error() {
    for endpoint in one_endpoint_each() {
        run(
            &endpoint,
            |mut server| {
                assert_eq!(next(&mut server)[..], *b"hello");
                for _ in 0..2 {
                    let error = server.recv(TIMEOUT).expect_err("the end is missing");
                    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
                    assert!(error.to_string().contains("may be lost"), "{error}");
                }
                assert!(server.is_disconnected());
                let error = server.send(b"x", TIMEOUT).expect_err("disconnected");
                assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
                let error = server.shutdown(TIMEOUT).expect_err("disconnected");
                assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
                server.flush(TIMEOUT).expect("nothing was sent");
            },
            |mut client| {
                client.send(b"hello", TIMEOUT).expect("send");
                client.flush(TIMEOUT).expect("flush");
            },
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn long_messages_arrive_in_fragments_and_in_order() {
    let options = MessengerOptions::new()
        .max_len(100_000)
        .buffer_len(512)
        .depth(3);
    let lengths = [0, 1, 511, 512, 513, 1024, 5000, 100_000, 3, 99_999, 0];
    let message = |len: usize| -> Vec<u8> { (0..251).cycle().take(len).collect() };
    for endpoint in one_endpoint_each() {
        run_with(
            &endpoint,
            &options,
            |mut server| {
                for len in lengths {
                    let received = next(&mut server);
                    assert_eq!(received.len(), len);
                    assert!(received[..] == message(len), "{len} bytes");
                    server.send(&received, TIMEOUT).expect("send");
                    assert!(received.into_vec() == message(len));
                }
                assert_end(&mut server);
                server.shutdown(TIMEOUT).expect("shutdown");
            },
            |messenger| {
                let (mut sender, mut receiver) = messenger.split();
                thread::scope(|scope| {
                    scope.spawn(move || {
                        for len in lengths {
                            sender.send(&message(len), TIMEOUT).expect("send");
                        }
                        let error = sender.send(&message(100_001), TIMEOUT);
                        let error = error.expect_err("too long");
                        assert_eq!(error.kind(), ErrorKind::InvalidInput);
                        assert!(error.to_string().contains("max_len"), "{error}");
                        sender.shutdown(TIMEOUT).expect("shutdown");
                    });
                    for len in lengths {
                        let echo = receiver.recv(TIMEOUT).expect("receive").expect("an echo");
                        assert!(echo[..] == message(len), "{len} bytes");
                    }
                    assert!(receiver.recv(TIMEOUT).expect("the end").is_none());
                });
            },
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn both_sides_send_and_receive_on_two_threads() {
    let count = scaled(2000);
    let flood = |messenger: Messenger| {
        let (mut sender, mut receiver) = messenger.split();
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..count {
                    sender.send(&number.to_be_bytes(), TIMEOUT).expect("send");
                    if number % 100 == 0 {
                        sender.flush(TIMEOUT).expect("flush");
                    }
                }
                sender.shutdown(TIMEOUT).expect("shutdown");
            });
            for number in 0..count {
                let message = receiver.recv(TIMEOUT).expect("receive").expect("a message");
                assert_eq!(message[..], number.to_be_bytes());
            }
            assert!(receiver.recv(TIMEOUT).expect("the end").is_none());
        });
    };
    for endpoint in one_endpoint_each() {
        run(&endpoint, flood, flood);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_program_that_polls_the_descriptor_misses_nothing() {
    fn wait(messenger: &Messenger) {
        let mut fds = [PollFd::new(messenger.as_fd(), PollFlags::POLLIN)];
        let count = poll(&mut fds, PollTimeout::from(20_000_u16)).expect("poll");
        assert_eq!(count, 1, "something new in time");
    }
    let count = 500_u32;
    for endpoint in one_endpoint_each() {
        run(
            &endpoint,
            |mut server| {
                let mut number = 0;
                loop {
                    match server.try_recv().expect("receive") {
                        TryRecv::Message(message) => {
                            assert_eq!(message[..], u32::to_be_bytes(number));
                            number += 1;
                        }
                        TryRecv::Empty => wait(&server),
                        TryRecv::End => break,
                    }
                }
                assert_eq!(number, count);
            },
            |mut client| {
                for number in 0..count {
                    while !client.try_send(&number.to_be_bytes()).expect("send") {
                        wait(&client);
                    }
                }
                client.shutdown(TIMEOUT).expect("shutdown");
            },
        );
    }
}

/// The peer is out of credits, and the thread that receives sleeps. Dropping messages elsewhere
/// must let the peer send again.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messages_dropped_on_another_thread_return_their_credits() {
    for endpoint in one_endpoint_each() {
        run(
            &endpoint,
            |server| {
                let (sender, mut receiver) = server.split();
                let kept: Vec<Message> = (0..4)
                    .map(|_| receiver.recv(TIMEOUT).expect("receive").expect("a message"))
                    .collect();
                thread::scope(|scope| {
                    scope.spawn(|| {
                        thread::sleep(Duration::from_millis(100));
                        assert!(kept.iter().enumerate().all(|(at, message)| {
                            message[..] == [u8::try_from(at).expect("a small number")]
                        }));
                        drop(kept);
                    });
                    for number in 4..20 {
                        let message = receiver.recv(TIMEOUT).expect("receive");
                        assert_eq!(message.expect("a message")[..], [number]);
                    }
                });
                assert!(receiver.recv(TIMEOUT).expect("the end").is_none());
                drop(sender);
            },
            |mut client| {
                for number in 0..20 {
                    client.send(&[number], TIMEOUT).expect("send");
                }
                client.shutdown(TIMEOUT).expect("shutdown");
            },
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn buffers_are_sent_without_a_copy() {
    for endpoint in one_endpoint_each() {
        run(
            &endpoint,
            |mut server| {
                for number in 0..100_u8 {
                    let message = next(&mut server);
                    assert_eq!(message[..], vec![number; usize::from(number)]);
                }
                assert_end(&mut server);
            },
            |mut client| {
                for number in 0..100_u8 {
                    let mut buffer = client.buffer(TIMEOUT).expect("a buffer");
                    assert_eq!(buffer.len(), 100);
                    buffer.fill(number);
                    buffer.truncate(number.into());
                    client.send_buffer(buffer, TIMEOUT).expect("send");
                }
                client.shutdown(TIMEOUT).expect("shutdown");
            },
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messages_outlive_their_messenger() {
    for endpoint in one_endpoint_each() {
        run(
            &endpoint,
            |mut server| {
                server.send(b"kept", TIMEOUT).expect("send");
                server.shutdown(TIMEOUT).expect("shutdown");
            },
            |mut client| {
                let kept = next(&mut client);
                assert_end(&mut client);
                drop(client);
                assert_eq!(kept[..], *b"kept");
            },
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn one_sided_requests_complete_with_their_tags() {
    for endpoint in one_endpoint_each() {
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let options = options().access(access).requests(1);
        run_with(
            &endpoint,
            &options,
            |mut server| {
                let region = server
                    .pd()
                    .shared(16, AccessFlags::REMOTE_WRITE)
                    .expect("memory");
                let remote = region.remote();
                let encoded = [
                    remote.addr.to_be_bytes(),
                    u64::from(remote.rkey).to_be_bytes(),
                ]
                .concat();
                // On iWARP the greeting of the connecting side lets the accepting side send first.
                server.send(&encoded, TIMEOUT).expect("send");
                assert_eq!(next(&mut server)[..], *b"written");
                let mut written = [0; 16];
                region.read(0, &mut written).expect("read");
                assert_eq!(written, *b"sixteen letters!");
                server.shutdown(TIMEOUT).expect("shutdown");
            },
            |mut client| {
                let encoded = next(&mut client).to_vec();
                let number = |offset: usize| {
                    u64::from_be_bytes(encoded[offset..offset + 8].try_into().expect("8 bytes"))
                };
                let remote = ibverbs::RemoteMemory {
                    addr: number(0),
                    rkey: u32::try_from(number(8)).expect("32 bits"),
                    len: 16,
                };
                let mut text = client.pd().buf(16).expect("buffer");
                text.copy_from_slice(b"sixteen letters!");
                client
                    .with_qp(|qp| qp.post_send(wr::write(text, remote).tag(9)))
                    .expect("a queue pair")
                    .expect("post");
                let retired = client.completed(TIMEOUT).expect("a completion");
                retired.check().expect("written");
                assert_eq!(retired.tag(), 9);
                client.send(b"written", TIMEOUT).expect("send");
                client.flush(TIMEOUT).expect("flush");
                assert_end(&mut client);
            },
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn disconnects_read_by_another_thread_are_received() {
    for endpoint in one_endpoint_each() {
        assert_no_leaks(&endpoint, || {
            let channel = EventChannel::create().expect("channel");
            let listener = ListenOptions::new()
                .channel(&channel)
                .bind(SocketAddr::new(endpoint.ip, 0))
                .expect("listen");
            let address = listener.local_addr();
            let options = MessengerOptions::default();
            thread::scope(|scope| {
                let client = scope.spawn(|| {
                    let mut client =
                        Messenger::connect(address, &options, TIMEOUT).expect("connect");
                    client.send(b"one", TIMEOUT).expect("send");
                    client
                });
                let request = listener
                    .next_request(Some(TIMEOUT))
                    .expect("accept")
                    .expect("an event or request in time");
                let mut server = Messenger::accept(request, &options, TIMEOUT).expect("accept");
                server.migrate(&channel).expect("migrate");
                assert_eq!(next(&mut server)[..], *b"one");
                // The client disconnects only now. Receiving reads all events of the channel, and
                // after that nothing would wake a thread that waits for the channel.
                drop(client.join().expect("client"));
                while channel
                    .wait(Some(TIMEOUT))
                    .expect("wait")
                    .expect("an event in time")
                    != server.key()
                {}
                let error = server.recv(TIMEOUT).expect_err("the connection has ended");
                assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
            });
        });
    }
}
