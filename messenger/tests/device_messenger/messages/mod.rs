//! Messengers on real drivers: delivery, the end of a stream, and the two sides of a connection.
//!
//! `MESSENGER_MANY` multiplies the number of messages to a slow receiver: 100,000 with
//! `MESSENGER_MANY=50`.

mod ends;

use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{AccessFlags, ErrorKind, wr};
use messenger::{Message, Messenger, MessengerOptions, TryRecv};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::hooks;
use crate::lab::{self, Endpoint, TIMEOUT, assert_no_leaks, one_endpoint_each};

fn options() -> MessengerOptions<'static> {
    MessengerOptions::new().max_len(100).depth(4)
}

/// Runs both sides, which may leave objects behind.
fn run_unchecked(
    endpoint: &Endpoint,
    options: &MessengerOptions<'_>,
    server: impl FnOnce(Messenger) + Send,
    client: impl FnOnce(Messenger),
) {
    let listener = endpoint.listen();
    let address = listener.local_addr();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let request = lab::request(&listener);
            server(Messenger::accept(request, options, TIMEOUT).expect("accept"));
        });
        client(Messenger::connect(address, options, TIMEOUT).expect("connect"));
        server.join().expect("server");
    });
}

/// Runs both sides.
fn run_with(
    endpoint: &Endpoint,
    options: &MessengerOptions<'_>,
    server: impl FnOnce(Messenger) + Send,
    client: impl FnOnce(Messenger),
) {
    assert_no_leaks(endpoint, || {
        run_unchecked(endpoint, options, server, client);
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
    const MESSAGES: usize = 20;
    let free = |messenger: &mut Messenger| {
        let slots = messenger.with_qp(|qp| qp.recv_slots_free());
        slots.expect("open")
    };
    for (endpoint, first) in one_endpoint_each()
        .iter()
        .flat_map(|one| ["copy", "buffer", "end"].map(|first| (one, first)))
    {
        // What the client sends takes receives, too.
        let (checked, checks) = mpsc::channel();
        run(
            endpoint,
            move |mut server| {
                let unused = free(&mut server);
                match first {
                    "copy" => assert!(server.try_send(b"first").expect("send")),
                    "buffer" => {
                        let buffer = server.buffer(TIMEOUT).expect("buffer");
                        server.send_buffer(buffer, TIMEOUT).expect("send");
                    }
                    _ => server.shutdown(TIMEOUT).expect("shutdown"),
                }
                // Those for the four other control messages of docs/design-messenger.md.
                assert_eq!(free(&mut server), unused - 4);
                checked.send(()).expect("the client waits");
                // Credits that arrive meanwhile take receives, too, but not each time.
                let at_once = (0..MESSAGES).map(|_| {
                    let message = next(&mut server);
                    let kept = free(&mut server);
                    drop(message);
                    free(&mut server) + 1 == kept
                });
                assert_ne!(at_once.filter(|&is_posted| is_posted).count(), 0);
                checked.send(()).expect("the client waits");
                server.shutdown(TIMEOUT).expect("shutdown");
                assert_end(&mut server);
            },
            |mut client| {
                checks.recv().expect("the server has checked");
                let message = client.recv(TIMEOUT).expect("receive");
                assert_eq!(message.is_none(), first == "end");
                drop(message);
                for _ in 0..MESSAGES {
                    client.send(b"second", TIMEOUT).expect("send");
                }
                checks.recv().expect("the server has checked");
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
        let (buffers, foreign) = mpsc::channel();
        run(
            &endpoint,
            |mut server| {
                let buffer = server.buffer(TIMEOUT).expect("a buffer");
                buffers.send(buffer).expect("the client waits");
                for number in 0..100_u8 {
                    let message = next(&mut server);
                    assert_eq!(message[..], vec![number; usize::from(number)]);
                }
                assert_end(&mut server);
            },
            |mut client| {
                let foreign = foreign.recv().expect("a buffer");
                let error = client.send_buffer(foreign, TIMEOUT).expect_err("foreign");
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
                for number in 0..100_u8 {
                    let mut buffer = client.buffer(TIMEOUT).expect("a buffer");
                    assert_eq!(buffer.len(), 100);
                    buffer.fill(number);
                    buffer.truncate(number.into());
                    client.send_buffer(buffer, TIMEOUT).expect("send");
                }
                let late = client.buffer(TIMEOUT).expect("a buffer");
                client.shutdown(TIMEOUT).expect("shutdown");
                let error = client.send_buffer(late, TIMEOUT).expect_err("shut down");
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
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
        let options = options.buffer_len(1000).max_len(5000);
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
                assert_eq!(next(&mut server)[..], [7; 5000]);
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
                // A message takes only the slots that the requests have left.
                while client.with_qp(|qp| qp.send_slots_free()).expect("a queue") > 1 {
                    let mut byte = client.pd().buf(1).expect("buffer");
                    byte.copy_from_slice(b"s");
                    let posted = client.with_qp(|qp| qp.post_send(wr::write(byte, remote).tag(9)));
                    posted.expect("a queue pair").expect("post");
                }
                client.send(&[7; 5000], TIMEOUT).expect("send");
                client.flush(TIMEOUT).expect("flush");
                assert_end(&mut client);
            },
        );
    }
}

/// Another thread may take the completion of a thread that sleeps, but not its event.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_thread_that_sleeps_sees_the_event_of_its_message() {
    for endpoint in one_endpoint_each() {
        let (sleeps, has_slept) = mpsc::channel();
        let (sent, was_sent) = mpsc::channel();
        run(
            &endpoint,
            move |server| {
                let (mut sender, mut receiver) = server.split();
                for _ in 0..4 {
                    assert!(sender.try_send(b"not taken").expect("send"));
                }
                let take = move || {
                    sleeps.send(()).expect("the client waits");
                    was_sent.recv().expect("a message has arrived");
                    assert!(!sender.try_send(b"too many").expect("send"));
                };
                let message = hooks::before_sleep(take, || receiver.recv(TIMEOUT));
                assert_eq!(message.expect("receive").expect("a message")[..], *b"hello");
            },
            move |mut client| {
                has_slept.recv().expect("the server sleeps");
                hooks::deliver(&mut client, b"hello");
                sent.send(()).expect("the server waits");
                client.recv(TIMEOUT).expect("receive").expect("a message");
            },
        );
    }
}
