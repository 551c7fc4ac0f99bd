//! Scopes: requests use borrowed memory, and the device does not access it after the scope.

use std::time::Duration;

use ibverbs::{
    AccessFlags, CompletionQueue, Error, ErrorKind, PostError, QpOptions, QueuePair, Rc, wr,
};

use crate::lab::{Pair, forget, pair, pair_with_access, pairs, roce};

const LONG: Duration = Duration::from_secs(20);

/// Length of a READ that is still in flight when its scope ends.
const READ_LEN: usize = 16 << 20;

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn borrowed_memory_is_sent_and_received() {
    for pair in pairs() {
        let Pair {
            pd,
            mut cq,
            mut a,
            mut b,
        } = pair;
        let message: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let mut reply = vec![0; 200_000];
        b.post_recv(wr::recv(pd.buf(100_000).expect("buffer")).tag(9))
            .expect("receive");
        a.scope(|scope| {
            let reply = scope.lend_mut(&mut reply)?;
            let lent = scope.lend(&message)?;
            assert_eq!((lent.len(), reply.len()), (100_000, 200_000));
            scope.post_recv(wr::recv(reply.slice(50_000..200_000).expect("in range")))?;
            scope.post_send(wr::send(lent.slice(1..100_000).expect("in range")))?;
            assert_eq!(scope.lent_in_flight(), 2);
            let mut replied = None;
            scope.wait(&mut cq, LONG, |item| match item {
                Ok(retired) => retired.check().expect("success"),
                Err(completion) => {
                    let retired = b.retire(completion).expect("posted on the peer");
                    if retired.tag() == 9 {
                        b.post_send(wr::send(retired.into_buf().expect("posted with a buffer")))
                            .expect("reply");
                    } else {
                        replied = Some(());
                    }
                }
            })?;
            assert_eq!(scope.lent_in_flight(), 0);
            Ok::<(), Error>(())
        })
        .expect("success");
        assert_eq!(reply[50_000..149_999], message[1..]);
        assert!(
            reply[..50_000]
                .iter()
                .chain(&reply[149_999..])
                .all(|&byte| byte == 0)
        );
        assert_eq!(a.recv_slots_free(), a.caps().max_recv_wr as usize);
    }
}

/// Checks that a queue pair which a scope has destroyed posts nothing, and that its verbs fail.
fn check_destroyed(qp: &mut QueuePair<Rc>, cq: &mut CompletionQueue) {
    assert!(qp.is_destroyed());
    let send = qp.post_send(wr::send(wr::Empty)).expect_err("destroyed");
    let recv = qp.post_recv(wr::recv(wr::Empty)).expect_err("destroyed");
    assert_eq!([send.error(), recv.error()], [PostError::Destroyed; 2]);
    let batch = qp.batch(|batch| Ok::<_, Error>(batch.send(wr::send(wr::Empty))?));
    let recvs = qp.recv_batch(|batch| Ok::<_, Error>(batch.recv(wr::recv(wr::Empty))?));
    let verbs = [
        batch,
        recvs,
        qp.state().map(drop),
        qp.query().map(drop),
        qp.query_ece().map(drop),
        qp.to_error(),
        qp.drain(&mut [cq], LONG, |_| ()).map(drop),
    ];
    for error in verbs.map(|verb| verb.expect_err("destroyed")) {
        assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    }
    for completion in cq.poll().expect("poll") {
        assert!(completion.queue() != qp.id() || qp.retire(completion).is_err());
    }
    // Nothing is in flight at the end of another scope.
    qp.scope(|scope| scope.lend(&[1; 64]).map(drop))
        .expect("lend");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn requests_in_flight_at_scope_end_destroy_the_queue_pair() {
    for pair in pairs() {
        let Pair {
            pd,
            mut cq,
            mut a,
            mut b,
        } = pair;
        let mut memory = vec![1_u8; 8192];
        a.post_recv(wr::recv(pd.buf(64).expect("buffer")).tag(5))
            .expect("receive");
        let ended = a.scope(|scope| -> Result<(), Error> {
            let lent = scope.lend_mut(&mut memory)?;
            scope.post_recv(wr::recv(lent))?;
            Ok(())
        });
        let error = ended.expect_err("a request was in flight");
        assert_eq!(error.kind(), ErrorKind::Disconnected);
        check_destroyed(&mut a, &mut cq);
        // Messages that arrive now must not change the memory.
        for _ in 0..2 {
            b.post_send(wr::send(wr::Inline(&[9; 32]))).expect("send");
        }
        std::thread::sleep(Duration::from_millis(100));
        assert!(memory.iter().all(|&byte| byte == 1));
        let reclaimed = a.destroy().expect("destroyed by the scope");
        let tags = reclaimed.recvs.iter().map(|(tag, _)| *tag);
        assert_eq!(tags.collect::<Vec<_>>(), [5]);
        drop((pd, cq));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn read_in_flight_writes_nothing_after_the_scope() {
    let access = AccessFlags::REMOTE_READ;
    for context in roce() {
        let mut pair = pair_with_access::<Rc>(&context, QpOptions::default(), access);
        let pd = &pair.pd;
        let region = pd.shared(READ_LEN, access).expect("region");
        let ones = vec![1; 1 << 20];
        for part in 0..READ_LEN >> 20 {
            region.write(part << 20, &ones).expect("in range");
        }
        let mut sink = vec![0_u8; READ_LEN];
        let ended = pair.a.scope(|scope| -> Result<(), Error> {
            let lent = scope.lend_mut(&mut sink)?;
            scope.post_send(wr::read(lent, region.remote()))?;
            Ok(())
        });
        ended.expect_err("the read was in flight");
        sink.fill(2);
        std::thread::sleep(Duration::from_millis(200));
        assert!(sink.iter().all(|&byte| byte == 2));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn forgetting_scope_values_is_sound() {
    for context in roce() {
        let Pair {
            pd,
            mut cq,
            mut a,
            mut b,
        } = pair(&context, QpOptions::default());
        let mut memory = [0_u8; 64];
        b.post_recv(wr::recv(pd.buf(64).expect("buffer")))
            .expect("receive");
        a.scope(|scope| {
            let lent = scope.lend_mut(&mut memory)?;
            forget(lent.clone());
            scope.post_send(wr::send(lent.clone()))?;
            scope.wait(&mut cq, LONG, |item| match item {
                Ok(retired) => forget(retired),
                Err(completion) => drop(b.retire(completion)),
            })
        })
        .expect("the request stays retired if its `Retired` value is forgotten");
        // A request whose completion is not retired stays in flight.
        let ended = a.scope(|scope| -> Result<(), Error> {
            let lent = scope.lend(b"never retired")?;
            scope.post_send(wr::send(lent))?;
            std::thread::sleep(Duration::from_millis(50));
            for completion in cq.poll()? {
                let _ = completion;
            }
            Ok(())
        });
        ended.expect_err("a request was in flight");
        assert!(a.is_destroyed());
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn failed_request_returns_borrowed_memory() {
    for context in roce() {
        let Pair {
            pd,
            mut cq,
            mut a,
            mut b,
        } = pair(&context, QpOptions::default());
        let message = [0_u8; 64];
        b.post_recv(wr::recv(pd.buf(16).expect("buffer")))
            .expect("receive");
        let statuses = a.scope(|scope| -> Result<_, Error> {
            let lent = scope.lend(&message)?;
            scope.post_send(wr::send(lent))?;
            let mut statuses = Vec::new();
            scope.wait(&mut cq, LONG, |item| match item {
                Ok(retired) => statuses.push(retired.is_success()),
                Err(completion) => drop(b.retire(completion)),
            })?;
            Ok(statuses)
        });
        assert_eq!(statuses.expect("no timeout"), [false]);
    }
}
