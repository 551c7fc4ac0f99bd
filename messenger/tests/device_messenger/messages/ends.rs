//! The end of a connection.

use std::net::SocketAddr;
use std::thread;

use ibverbs::{CqOptions, ErrorKind, QpOptions, wr};
use messenger::{Messenger, MessengerOptions};
use rdmacm::{EventChannel, ListenOptions};

use super::{assert_end, next, options, run, run_unchecked};
use crate::lab::{TIMEOUT, assert_no_leaks, one_endpoint_each};

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

/// No other thread reads the events of the last channel.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn disconnects_arrive_on_the_channel_that_a_messenger_moved_to() {
    for endpoint in one_endpoint_each() {
        run(
            &endpoint,
            |mut server| {
                let channels = [(); 2].map(|()| EventChannel::create().expect("channel"));
                for channel in channels.iter().chain(&channels[..1]) {
                    server.migrate(channel).expect("migrate");
                }
                drop(channels);
                let error = server.recv(TIMEOUT).expect_err("the connection has ended");
                assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
            },
            drop,
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_queue_pair_that_is_lost_ends_the_connection() {
    for (endpoint, is_replaced) in one_endpoint_each()
        .iter()
        .flat_map(|one| [(one, false), (one, true)])
    {
        run_unchecked(
            endpoint,
            &options(),
            |mut server| {
                let ended = server.recv(TIMEOUT);
                ended.expect_err("the connection has ended");
            },
            |mut client| {
                let mut memory = [0; 64];
                let lost = client.with_qp(|qp| -> ibverbs::Result<()> {
                    if is_replaced {
                        let cq = qp.pd().context().create_cq(CqOptions::new())?;
                        *qp = qp.pd().create_qp(&cq, &cq, QpOptions::new())?;
                        return Ok(());
                    }
                    qp.scope(|scope| {
                        let memory = scope.lend_mut(&mut memory)?;
                        Ok(scope.post_recv(wr::recv(memory))?)
                    })
                });
                let result = lost.expect("connected");
                assert_eq!(result.is_ok(), is_replaced, "{result:?}");
                let error = client.send(b"lost", TIMEOUT).expect_err("no queue pair");
                assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
                assert!(error.to_string().contains("queue pair"), "{error}");
            },
        );
    }
}
