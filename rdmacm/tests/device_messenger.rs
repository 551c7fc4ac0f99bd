//! The convenient layer on real drivers: messages with no receive too late, the end of a
//! connection, its errors.

mod lab;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ibverbs::{AccessFlags, ErrorKind, wr};
use lab::{PATIENCE, Place, leaves_nothing, one_place_each};
use rdmacm::{Messenger, MessengerOptions};

fn options() -> MessengerOptions<'static> {
    MessengerOptions {
        max_len: 100,
        depth: 4,
        ..MessengerOptions::default()
    }
}

/// Runs both ends.
fn between(place: &Place, server: impl FnOnce(Messenger) + Send, client: impl FnOnce(Messenger)) {
    leaves_nothing(place, || {
        let listener = place.listen();
        let address = listener.local_addr();
        thread::scope(|scope| {
            scope.spawn(|| {
                let request = listener
                    .accept(Some(PATIENCE))
                    .expect("accept")
                    .expect("in time");
                server(Messenger::accept(request, &options(), PATIENCE).expect("accept"));
            });
            client(Messenger::connect(address, &options(), PATIENCE).expect("connect"));
        });
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messages_go_both_ways_in_order_until_one_end_leaves() {
    for place in one_place_each() {
        between(
            &place,
            |mut server| {
                let mut count = 0;
                while let Some(message) = server.recv(PATIENCE).expect("receive") {
                    assert_eq!(message[..], [count; 50]);
                    server.send(&message, PATIENCE).expect("send");
                    count += 1;
                }
                assert_eq!(count, 40);
                assert!(server.connection().is_disconnected());
                assert!(server.recv(PATIENCE).expect("still over").is_none());
                let error = server.send(b"too late", PATIENCE).expect_err("gone");
                assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
            },
            |mut client| {
                // As many ahead as the options say.
                for count in 0..40 {
                    client.send(&[count; 50], PATIENCE).expect("send");
                    if count % 4 == 3 {
                        for back in count - 3..=count {
                            let message = client.recv(PATIENCE).expect("receive").expect("one");
                            assert_eq!(message[..], [back; 50]);
                        }
                    }
                }
                client.flush(PATIENCE).expect("flush");
            },
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn who_may_not_speak_yet_and_what_is_too_long_is_told() {
    for place in one_place_each() {
        let is_iwarp = place.is_iwarp();
        let (tell, told) = mpsc::channel();
        between(
            &place,
            move |mut server| {
                match server.send(b"first", PATIENCE) {
                    Ok(()) => assert!(!is_iwarp),
                    Err(error) => {
                        assert!(is_iwarp, "{error}");
                        assert_eq!(error.kind(), ErrorKind::InvalidInput);
                        assert!(error.to_string().contains("speaks first"), "{error}");
                    }
                }
                tell.send(()).expect("awaited");
                assert_eq!(
                    server.recv(PATIENCE).expect("receive").expect("one")[..],
                    *b"hello"
                );
                server.send(b"second", PATIENCE).expect("now it may");
                assert!(server.recv(PATIENCE).expect("receive").is_none());
            },
            |mut client| {
                let error = client.send(&[0; 101], PATIENCE).expect_err("too long");
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert!(error.to_string().contains("max_len"), "{error}");
                let error = client
                    .recv(Duration::ZERO)
                    .map(|message| message.map(|message| message.to_vec()));
                if is_iwarp {
                    assert_eq!(error.expect_err("nothing yet").kind(), ErrorKind::TimedOut);
                }
                told.recv_timeout(PATIENCE).expect("the server has tried");
                client.send(b"hello", PATIENCE).expect("send");
                loop {
                    let message = client.recv(PATIENCE).expect("receive").expect("one");
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
fn other_operations_than_messages_end_by_their_tags() {
    for place in one_place_each() {
        leaves_nothing(&place, || {
            let listener = place.listen();
            let address = listener.local_addr();
            let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
            let options = MessengerOptions {
                access,
                ..options()
            };
            thread::scope(|scope| {
                scope.spawn(|| {
                    let request = listener
                        .accept(Some(PATIENCE))
                        .expect("accept")
                        .expect("in time");
                    let mut server =
                        Messenger::accept(request, &options, PATIENCE).expect("accept");
                    let open = server
                        .connection()
                        .qp()
                        .pd()
                        .shared(16, AccessFlags::REMOTE_WRITE)
                        .expect("memory");
                    assert_eq!(
                        server.recv(PATIENCE).expect("receive").expect("one")[..],
                        *b"where?"
                    );
                    let remote = open.remote();
                    let place = [
                        remote.addr.to_be_bytes(),
                        u64::from(remote.rkey).to_be_bytes(),
                    ]
                    .concat();
                    server.send(&place, PATIENCE).expect("send");
                    assert_eq!(
                        server.recv(PATIENCE).expect("receive").expect("one")[..],
                        *b"written"
                    );
                    let mut seen = [0; 16];
                    open.read(0, &mut seen).expect("read");
                    assert_eq!(seen, *b"sixteen letters!");
                });
                let mut client = Messenger::connect(address, &options, PATIENCE).expect("connect");
                client.send(b"where?", PATIENCE).expect("send");
                let place = client
                    .recv(PATIENCE)
                    .expect("receive")
                    .expect("one")
                    .to_vec();
                let number =
                    |at: usize| u64::from_be_bytes(place[at..at + 8].try_into().expect("8 bytes"));
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
                let done = client.completed(PATIENCE).expect("ended");
                done.ok().expect("written");
                assert_eq!(done.tag(), 9);
                client.send(b"written", PATIENCE).expect("send");
                client.flush(PATIENCE).expect("flush");
                assert!(client.recv(PATIENCE).expect("receive").is_none());
            });
        });
    }
}
