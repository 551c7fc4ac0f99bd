//! The messenger on real drivers: receives posted in time, the end of a connection, and errors.

mod lab;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ibverbs::{AccessFlags, ErrorKind, wr};
use lab::{Endpoint, TIMEOUT, assert_no_leaks, one_endpoint_each};
use rdmacm::{Messenger, MessengerOptions};

fn options() -> MessengerOptions<'static> {
    MessengerOptions {
        max_len: 100,
        depth: 4,
        ..MessengerOptions::default()
    }
}

/// Runs both sides.
fn run(endpoint: &Endpoint, server: impl FnOnce(Messenger) + Send, client: impl FnOnce(Messenger)) {
    assert_no_leaks(endpoint, || {
        let listener = endpoint.listen();
        let address = listener.local_addr();
        thread::scope(|scope| {
            scope.spawn(|| {
                let request = listener
                    .accept(Some(TIMEOUT))
                    .expect("accept")
                    .expect("an event or request in time");
                server(Messenger::accept(request, &options(), TIMEOUT).expect("accept"));
            });
            client(Messenger::connect(address, &options(), TIMEOUT).expect("connect"));
        });
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messages_are_exchanged_in_order_until_a_disconnect() {
    for endpoint in one_endpoint_each() {
        run(
            &endpoint,
            |mut server| {
                let mut count = 0;
                while let Some(message) = server.recv(TIMEOUT).expect("receive") {
                    assert_eq!(message[..], [count; 50]);
                    server.send(&message, TIMEOUT).expect("send");
                    count += 1;
                }
                assert_eq!(count, 40);
                assert!(server.connection().is_disconnected());
                assert!(server.recv(TIMEOUT).expect("still ended").is_none());
                let error = server.send(b"too late", TIMEOUT).expect_err("disconnected");
                assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
            },
            |mut client| {
                // At most `depth` messages are in flight.
                for count in 0..40 {
                    client.send(&[count; 50], TIMEOUT).expect("send");
                    if count % 4 == 3 {
                        for echo in count - 3..=count {
                            let message =
                                client.recv(TIMEOUT).expect("receive").expect("a message");
                            assert_eq!(message[..], [echo; 50]);
                        }
                    }
                }
                client.flush(TIMEOUT).expect("flush");
            },
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn early_and_too_long_sends_are_errors() {
    for endpoint in one_endpoint_each() {
        let is_iwarp = endpoint.is_iwarp();
        let (attempted_tx, attempted_rx) = mpsc::channel();
        run(
            &endpoint,
            move |mut server| {
                match server.send(b"first", TIMEOUT) {
                    Ok(()) => assert!(!is_iwarp),
                    Err(error) => {
                        assert!(is_iwarp, "{error}");
                        assert_eq!(error.kind(), ErrorKind::InvalidInput);
                        assert!(error.to_string().contains("must send first"), "{error}");
                    }
                }
                attempted_tx.send(()).expect("the client waits");
                assert_eq!(
                    server.recv(TIMEOUT).expect("receive").expect("a message")[..],
                    *b"hello"
                );
                server
                    .send(b"second", TIMEOUT)
                    .expect("send after a receive");
                assert!(server.recv(TIMEOUT).expect("receive").is_none());
            },
            |mut client| {
                let error = client.send(&[0; 101], TIMEOUT).expect_err("too long");
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert!(error.to_string().contains("max_len"), "{error}");
                let error = client
                    .recv(Duration::ZERO)
                    .map(|message| message.map(|message| message.to_vec()));
                if is_iwarp {
                    assert_eq!(
                        error.expect_err("no message yet").kind(),
                        ErrorKind::TimedOut
                    );
                }
                attempted_rx
                    .recv_timeout(TIMEOUT)
                    .expect("the server has tried");
                client.send(b"hello", TIMEOUT).expect("send");
                loop {
                    let message = client.recv(TIMEOUT).expect("receive").expect("a message");
                    if message[..] == *b"second" {
                        break;
                    }
                    assert_eq!(message[..], *b"first");
                }
            },
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn one_sided_requests_complete_with_their_tags() {
    for endpoint in one_endpoint_each() {
        assert_no_leaks(&endpoint, || {
            let listener = endpoint.listen();
            let address = listener.local_addr();
            let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
            let options = MessengerOptions {
                access,
                ..options()
            };
            thread::scope(|scope| {
                scope.spawn(|| {
                    let request = listener
                        .accept(Some(TIMEOUT))
                        .expect("accept")
                        .expect("an event or request in time");
                    let mut server = Messenger::accept(request, &options, TIMEOUT).expect("accept");
                    let region = server
                        .connection()
                        .qp()
                        .pd()
                        .shared(16, AccessFlags::REMOTE_WRITE)
                        .expect("memory");
                    assert_eq!(
                        server.recv(TIMEOUT).expect("receive").expect("a message")[..],
                        *b"where?"
                    );
                    let remote = region.remote();
                    let encoded = [
                        remote.addr.to_be_bytes(),
                        u64::from(remote.rkey).to_be_bytes(),
                    ]
                    .concat();
                    server.send(&encoded, TIMEOUT).expect("send");
                    assert_eq!(
                        server.recv(TIMEOUT).expect("receive").expect("a message")[..],
                        *b"written"
                    );
                    let mut written = [0; 16];
                    region.read(0, &mut written).expect("read");
                    assert_eq!(written, *b"sixteen letters!");
                });
                let mut client = Messenger::connect(address, &options, TIMEOUT).expect("connect");
                client.send(b"where?", TIMEOUT).expect("send");
                let encoded = client
                    .recv(TIMEOUT)
                    .expect("receive")
                    .expect("a message")
                    .to_vec();
                let number = |offset: usize| {
                    u64::from_be_bytes(encoded[offset..offset + 8].try_into().expect("8 bytes"))
                };
                let rkey = u32::try_from(number(8)).expect("32 bits");
                let remote = ibverbs::RemoteMemory {
                    addr: number(0),
                    rkey,
                    len: 16,
                };
                let mut text = client.connection().qp().pd().buf(16).expect("buffer");
                text.copy_from_slice(b"sixteen letters!");
                client
                    .connection_mut()
                    .qp_mut()
                    .post_send(wr::write(text, remote).tag(9))
                    .expect("post");
                let retired = client.completed(TIMEOUT).expect("a completion");
                retired.ok().expect("written");
                assert_eq!(retired.tag(), 9);
                client.send(b"written", TIMEOUT).expect("send");
                client.flush(TIMEOUT).expect("flush");
                assert!(client.recv(TIMEOUT).expect("receive").is_none());
            });
        });
    }
}
