//! Borrowed memory on connections of every device.

mod lab;

use std::time::Duration;

use ibverbs::{AccessFlags, ErrorKind, PostError, device::TransportType, wr};
use lab::{PATIENCE, Wired, leaves_nothing, places};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn borrowed_memory_goes_there_and_back() {
    for place in places() {
        leaves_nothing(&place, || {
            let (a, mut b) = place.pair();
            let message: Vec<u8> = (0..=255).cycle().take(50_000).collect();
            let mut reply = vec![0_u8; 60_000];
            let big = b.end.pd.buf(50_000).expect("buffer");
            b.connection
                .qp_mut()
                .post_recv(wr::recv(big))
                .expect("receive");
            let Wired {
                connection,
                mut end,
            } = a;
            let (outcome, connection) = connection.scope(|scope| {
                let reply = scope.lend_mut(&mut reply).expect("lend");
                let message = scope.lend(&message).expect("lend");
                // The receive that each end has posted takes the first, short message.
                scope
                    .post_send(wr::send(message.clone().slice(0..8).expect("within")))
                    .expect("send");
                scope.post_send(wr::send(message)).expect("send");
                scope.post_recv(wr::recv(reply)).expect("receive");
                assert_eq!(b.retire().byte_len(), 8);
                let received = b.retire();
                received.ok().expect("received");
                b.send(b"takes the receive that was posted before");
                let echo = received.into_buf().expect("posted with one");
                b.connection
                    .qp_mut()
                    .post_send(wr::send(echo))
                    .expect("echo");
                scope.wait(&mut end.cq, PATIENCE, |item| {
                    item.expect("one queue pair").ok().expect("success");
                })
            });
            outcome.expect("all retired");
            assert_eq!(reply[..50_000], message);
            assert!(reply[50_000..].iter().all(|&byte| byte == 0));
            let mut a = Wired {
                connection: connection.expect("lives"),
                end,
            };
            for _ in 0..2 {
                b.retire().ok().expect("sent");
            }
            b.receive();
            a.send(b"and it works on");
            a.retire().ok().expect("sent");
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn what_arrives_after_the_scope_touches_nothing() {
    for place in places() {
        leaves_nothing(&place, || {
            let (a, mut b) = place.pair();
            let mut memory = vec![1_u8; 1 << 20];
            let Wired {
                connection,
                mut end,
            } = a;
            b.send(b"takes the receive that was posted before");
            let mut early = b.end.pd.buf(1 << 20).expect("buffer");
            early.fill(7);
            let (outcome, connection) = connection.scope(|scope| {
                let lent = scope.lend_mut(&mut memory).expect("lend");
                scope.post_recv(wr::recv(lent)).expect("receive");
                // On its way when the scope ends, or about to be.
                b.connection
                    .qp_mut()
                    .post_send(wr::send(early))
                    .expect("send");
                scope.wait(&mut end.cq, Duration::ZERO, |_| ())
            });
            memory.fill(2);
            if outcome.is_err() {
                drop(connection.expect_err("the queue pair was destroyed"));
            }
            std::thread::sleep(Duration::from_millis(200));
            assert!(memory.iter().all(|&byte| byte == 2));
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn on_iwarp_a_read_needs_memory_that_is_open_to_the_peer() {
    for place in places() {
        leaves_nothing(&place, || {
            let (a, b) = place.pair();
            let region = b
                .end
                .pd
                .shared(64, AccessFlags::REMOTE_READ)
                .expect("region");
            let mut memory = [0_u8; 64];
            let (outcome, _) = a.connection.scope(|scope| {
                let lent = scope.lend_mut(&mut memory).expect("lend");
                scope
                    .post_send(wr::read(lent, region.remote()))
                    .map_err(|rejected| rejected.error())
            });
            if b.connection.transport() == TransportType::IWARP {
                assert_eq!(outcome, Err(PostError::NeedsShared));
            } else {
                outcome.expect("posted; the queue pair went with it");
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_region_of_a_connection_comes_back_when_the_connection_is_gone() {
    for place in places() {
        leaves_nothing(&place, || {
            let (_a, b) = place.pair();
            let region = b
                .end
                .pd
                .shared(64, AccessFlags::REMOTE_WRITE)
                .expect("region");
            let still = region.try_into_buf().expect_err("the connection lives");
            assert_eq!(still.error().kind(), ErrorKind::Mismatch);
            let Wired { connection, end } = b;
            drop(connection);
            assert_eq!(
                still
                    .into_region()
                    .try_into_buf()
                    .expect("no queue pair is left")[..],
                [0; 64]
            );
            drop(end);
        });
    }
}
