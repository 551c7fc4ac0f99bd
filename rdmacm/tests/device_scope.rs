//! Borrowed memory on connections of every device.

mod lab;

use std::time::Duration;

use ibverbs::{AccessFlags, ErrorKind, PostError, device::TransportType, wr};
use lab::{Peer, TIMEOUT, assert_no_leaks, endpoints};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn borrowed_memory_is_sent_and_received() {
    for endpoint in endpoints() {
        assert_no_leaks(&endpoint, || {
            let (a, mut b) = endpoint.pair();
            let message: Vec<u8> = (0..=255).cycle().take(50_000).collect();
            let mut reply = vec![0_u8; 60_000];
            let big = b.resources.pd.buf(50_000).expect("buffer");
            b.connection
                .qp_mut()
                .post_recv(wr::recv(big))
                .expect("receive");
            let Peer {
                connection,
                mut resources,
            } = a;
            let (result, connection) = connection.scope(|scope| {
                let reply = scope.lend_mut(&mut reply).expect("lend");
                let message = scope.lend(&message).expect("lend");
                // The receive that each side has posted takes the first, short message.
                scope
                    .post_send(wr::send(message.clone().slice(0..8).expect("within")))
                    .expect("send");
                scope.post_send(wr::send(message)).expect("send");
                scope.post_recv(wr::recv(reply)).expect("receive");
                assert_eq!(b.retire().byte_len(), 8);
                let received = b.retire();
                received.ok().expect("received");
                b.send(b"uses the receive posted earlier");
                let echo = received.into_buf().expect("the posted buffer");
                b.connection
                    .qp_mut()
                    .post_send(wr::send(echo))
                    .expect("echo");
                scope.wait(&mut resources.cq, TIMEOUT, |item| {
                    item.expect("one queue pair").ok().expect("success");
                })
            });
            result.expect("all retired");
            assert_eq!(reply[..50_000], message);
            assert!(reply[50_000..].iter().all(|&byte| byte == 0));
            let mut a = Peer {
                connection: connection.expect("the queue pair survived"),
                resources,
            };
            for _ in 0..2 {
                b.retire().ok().expect("sent");
            }
            b.receive();
            a.send(b"still connected");
            a.retire().ok().expect("sent");
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn late_messages_do_not_write_to_borrowed_memory() {
    for endpoint in endpoints() {
        assert_no_leaks(&endpoint, || {
            let (a, mut b) = endpoint.pair();
            let mut memory = vec![1_u8; 1 << 20];
            let Peer {
                connection,
                mut resources,
            } = a;
            b.send(b"uses the receive posted earlier");
            let mut early = b.resources.pd.buf(1 << 20).expect("buffer");
            early.fill(7);
            let (result, connection) = connection.scope(|scope| {
                let lent = scope.lend_mut(&mut memory).expect("lend");
                scope.post_recv(wr::recv(lent)).expect("receive");
                // The message is in flight when the scope ends, or is about to be.
                b.connection
                    .qp_mut()
                    .post_send(wr::send(early))
                    .expect("send");
                scope.wait(&mut resources.cq, Duration::ZERO, |_| ())
            });
            memory.fill(2);
            if result.is_err() {
                drop(connection.expect_err("the queue pair was destroyed"));
            }
            std::thread::sleep(Duration::from_millis(200));
            assert!(memory.iter().all(|&byte| byte == 2));
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_iwarp_read_needs_shared_memory() {
    for endpoint in endpoints() {
        assert_no_leaks(&endpoint, || {
            let (a, b) = endpoint.pair();
            let region = b
                .resources
                .pd
                .shared(64, AccessFlags::REMOTE_READ)
                .expect("region");
            let mut memory = [0_u8; 64];
            let (result, _) = a.connection.scope(|scope| {
                let lent = scope.lend_mut(&mut memory).expect("lend");
                scope
                    .post_send(wr::read(lent, region.remote()))
                    .map_err(|rejected| rejected.error())
            });
            if b.connection.transport() == TransportType::IWARP {
                assert_eq!(result, Err(PostError::NeedsShared));
            } else {
                result.expect("posted");
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_region_is_reclaimed_after_its_connection_is_dropped() {
    for endpoint in endpoints() {
        assert_no_leaks(&endpoint, || {
            let (_a, b) = endpoint.pair();
            let region = b
                .resources
                .pd
                .shared(64, AccessFlags::REMOTE_WRITE)
                .expect("region");
            let in_use = region.try_into_buf().expect_err("the connection lives");
            assert_eq!(in_use.error().kind(), ErrorKind::Mismatch);
            let Peer {
                connection,
                resources,
            } = b;
            drop(connection);
            assert_eq!(
                in_use
                    .into_region()
                    .try_into_buf()
                    .expect("no queue pair is left")[..],
                [0; 64]
            );
            drop(resources);
        });
    }
}
