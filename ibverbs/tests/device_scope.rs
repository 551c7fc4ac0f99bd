//! Borrowed memory: what a scope's requests do with it, and that none of it is touched after the
//! scope.

mod lab;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ibverbs::{
    AccessFlags, Completion, CompletionQueue, CqOptions, Error, ErrorKind, GidIndex, PostError,
    ProtectionDomain, QpOptions, QueuePair, Rc, RcPath, Retired, wr,
};
use lab::{LeakCheck, Pair, both_forms, devices, forget, pair, pair_of, roce};

const LONG: Duration = Duration::from_secs(20);

/// Long enough to be in flight for a while.
const LEN: usize = 16 << 20;

/// Retires what is the other queue pair's.
fn of(peer: &mut QueuePair<Rc>) -> impl FnMut(Result<Retired, Completion<'_>>) + '_ {
    |item| match item {
        Ok(retired) => retired.ok().expect("success"),
        Err(completion) => drop(peer.retire(completion).expect("the peer's")),
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn borrowed_memory_is_sent_and_received_into() {
    let _leak_check = LeakCheck::new();
    for context in roce() {
        for options in both_forms() {
            let Pair {
                pd,
                mut cq,
                a,
                mut b,
            } = pair(&context, options);
            let message: Vec<u8> = (0..=255).cycle().take(100_000).collect();
            let mut reply = vec![0; 200_000];
            b.post_recv(wr::recv(pd.buf(100_000).expect("buf")).tag(9))
                .expect("receive");
            let end = a.scope(|scope| -> Result<(), Error> {
                let reply = scope.lend_mut(&mut reply)?;
                let lent = scope.lend(&message)?;
                assert_eq!((lent.len(), reply.len()), (100_000, 200_000));
                scope.post_recv(wr::recv(reply.slice(50_000..200_000).expect("within")))?;
                scope.post_send(wr::send(lent.slice(1..100_000).expect("within")))?;
                assert_eq!(scope.lent_in_flight(), 2);
                let mut got = None;
                scope.wait(&mut cq, LONG, |item| match item {
                    Ok(retired) => retired.ok().expect("success"),
                    Err(completion) => {
                        let retired = b.retire(completion).expect("the peer's");
                        if retired.tag() == 9 {
                            b.post_send(wr::send(retired.into_buf().expect("posted with one")))
                                .expect("reply");
                        } else {
                            got = Some(());
                        }
                    }
                })?;
                assert_eq!(scope.lent_in_flight(), 0);
                Ok(())
            });
            let (a, outcome) = end.into_result().expect("the queue pair lives");
            outcome.expect("all is well");
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
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn borrowed_memory_is_written_read_and_batched() {
    let _leak_check = LeakCheck::new();
    let open = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    for context in roce() {
        for options in both_forms() {
            let Pair {
                pd,
                mut cq,
                a,
                mut b,
            } = pair_of::<Rc>(&context, options, open);
            let region = pd.shared(4096, open).expect("region");
            let source = [7_u8; 4096];
            let mut target = [0_u8; 4096];
            let end = a.scope(|scope| -> Result<(), Error> {
                let (source, target) = (scope.lend(&source)?, scope.lend_mut(&mut target)?);
                let pieces = |half: usize| half * 2048..(half + 1) * 2048;
                scope.batch(|batch| -> Result<(), Error> {
                    for half in 0..2 {
                        let piece = source.clone().slice(pieces(half)).expect("within");
                        let place = region.slice(pieces(half)).expect("within").remote();
                        batch.send(wr::write(piece, place).unsignaled())?;
                    }
                    batch.send(wr::read(target, region.remote()).fenced())?;
                    Ok(())
                })?;
                scope.wait(&mut cq, LONG, of(&mut b))
            });
            let (_, outcome) = end.into_result().expect("lives");
            outcome.expect("all is well");
            assert_eq!(target, source);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn what_is_in_flight_at_the_end_destroys_the_queue_pair_and_returns_its_buffers() {
    let _leak_check = LeakCheck::new();
    for context in roce() {
        for options in both_forms() {
            let Pair {
                pd,
                cq,
                mut a,
                mut b,
            } = pair(&context, options);
            let mut memory = vec![1_u8; 8192];
            a.post_recv(wr::recv(pd.buf(64).expect("buf")).tag(5))
                .expect("receive");
            let end = a.scope(|scope| {
                let lent = scope.lend_mut(&mut memory).expect("lend");
                scope.post_recv(wr::recv(lent)).expect("receive");
            });
            assert!(end.qp.is_none());
            assert_eq!(
                end.reclaimed
                    .recvs
                    .iter()
                    .map(|(tag, _)| *tag)
                    .collect::<Vec<_>>(),
                [5]
            );
            // What comes for it now goes nowhere.
            for _ in 0..2 {
                b.post_send(wr::send(wr::Inline(&[9; 32]))).expect("send");
            }
            std::thread::sleep(Duration::from_millis(100));
            assert!(memory.iter().all(|&byte| byte == 1));
            assert_eq!(
                end.into_result().expect_err("destroyed").kind(),
                ErrorKind::Disconnected
            );
            drop((pd, cq));
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_read_in_flight_writes_nothing_after_the_scope() {
    let _leak_check = LeakCheck::new();
    let open = AccessFlags::REMOTE_READ;
    for context in roce() {
        let Pair { pd, cq, a, b } = pair_of::<Rc>(&context, QpOptions::default(), open);
        let region = pd.shared(LEN, open).expect("region");
        let ones = vec![1; 1 << 20];
        for piece in 0..LEN >> 20 {
            region.write(piece << 20, &ones).expect("within");
        }
        let mut sink = vec![0_u8; LEN];
        let end = a.scope(|scope| {
            let lent = scope.lend_mut(&mut sink).expect("lend");
            scope
                .post_send(wr::read(lent, region.remote()))
                .expect("read");
        });
        assert!(end.qp.is_none(), "nobody waited for it");
        sink.fill(2);
        std::thread::sleep(Duration::from_millis(200));
        assert!(sink.iter().all(|&byte| byte == 2));
        drop((b, cq));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn forgetting_what_a_scope_gave_out_changes_nothing() {
    let _leak_check = LeakCheck::new();
    for context in roce() {
        let Pair {
            pd,
            mut cq,
            a,
            mut b,
        } = pair(&context, QpOptions::default());
        let mut memory = [0_u8; 64];
        b.post_recv(wr::recv(pd.buf(64).expect("buf")))
            .expect("receive");
        let end = a.scope(|scope| {
            let lent = scope.lend_mut(&mut memory).expect("lend");
            forget(lent.clone());
            scope.post_send(wr::send(lent.clone())).expect("send");
            scope.wait(&mut cq, LONG, |item| match item {
                Ok(retired) => forget(retired),
                Err(completion) => drop(b.retire(completion)),
            })
        });
        let (a, outcome) = end
            .into_result()
            .expect("a retired request that is forgotten is retired");
        outcome.expect("in time");
        // A completion that is not retired leaves its request in flight.
        let end = a.scope(|scope| {
            let lent = scope.lend(b"nobody retires this").expect("lend");
            scope.post_send(wr::send(lent)).expect("send");
            std::thread::sleep(Duration::from_millis(50));
            for completion in cq.poll().expect("poll") {
                let _ = completion;
            }
        });
        assert!(end.qp.is_none());
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_panic_ends_the_scope_as_well() {
    let _leak_check = LeakCheck::new();
    for context in roce() {
        let Pair { pd, cq, a, b } = pair(&context, QpOptions::default());
        let mut memory = vec![1_u8; 64];
        let pool = pd.pool(1, 64).expect("pool");
        let buf = pool.take().expect("free");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            a.scope(|scope| {
                let lent = scope.lend_mut(&mut memory).expect("lend");
                scope.post_recv(wr::recv(lent)).expect("receive");
                scope.post_recv(wr::recv(buf)).expect("receive");
                panic!("in the middle");
            })
            .value
        }));
        panicked.expect_err("panicked");
        assert_eq!(pool.available(), 1, "the queue pair is gone");
        memory.fill(3);
        drop((pd, cq, b));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_failed_request_ends_its_loan() {
    let _leak_check = LeakCheck::new();
    for context in roce() {
        let Pair {
            pd,
            mut cq,
            a,
            mut b,
        } = pair(&context, QpOptions::default());
        let message = [0_u8; 64];
        b.post_recv(wr::recv(pd.buf(16).expect("buf")))
            .expect("receive");
        let end = a.scope(|scope| {
            let lent = scope.lend(&message).expect("lend");
            scope.post_send(wr::send(lent)).expect("send");
            let mut statuses = Vec::new();
            let outcome = scope.wait(&mut cq, LONG, |item| match item {
                Ok(retired) => statuses.push(retired.is_success()),
                Err(completion) => drop(b.retire(completion)),
            });
            (outcome, statuses)
        });
        let (_, (outcome, statuses)) = end.into_result().expect("lives, in error");
        outcome.expect("in time");
        assert_eq!(statuses, [false]);
    }
}

/// A queue pair that receives can be posted to on any device: it is not connected.
fn unconnected(context: &ibverbs::Context) -> (ProtectionDomain, CompletionQueue, QueuePair<Rc>) {
    let pd = context.alloc_pd().expect("domain");
    let cq = context.create_cq(CqOptions::default()).expect("queue");
    let mut qp = pd
        .create_qp::<Rc>(&cq, &cq, QpOptions::default())
        .expect("queue pair");
    let port = context.query_port(1).expect("port");
    qp.init(&RcPath::new(1, GidIndex(0), port.active_mtu))
        .expect("INIT");
    (pd, cq, qp)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_scope_that_nothing_completes_ends_at_once_on_every_device() {
    let _leak_check = LeakCheck::new();
    for context in devices() {
        println!("device: {}", context.device_name());
        let (_pd, mut cq, qp) = unconnected(&context);
        let mut memory = [1_u8; 64];
        let end = qp.scope(|scope| {
            let lent = scope.lend_mut(&mut memory).expect("lend");
            scope.post_recv(wr::recv(lent)).expect("receive");
            scope.wait(&mut cq, Duration::from_millis(50), |_| ())
        });
        assert_eq!(
            end.value.as_ref().expect_err("nothing came").kind(),
            ErrorKind::TimedOut
        );
        assert!(end.qp.is_none());
        assert_eq!(memory, [1; 64]);
        let (_pd, _cq, qp) = unconnected(&context);
        let (_, ()) = qp.scope(|_| ()).into_result().expect("nothing was lent");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn what_cannot_be_lent_is_refused_on_every_device() {
    let _leak_check = LeakCheck::new();
    for context in devices() {
        println!("device: {}", context.device_name());
        let (_pd, _cq, qp) = unconnected(&context);
        let (_pd2, _cq2, mut other) = unconnected(&context);
        let mut memory = [1_u8; 64];
        let end = qp.scope(|scope| {
            assert_eq!(
                scope.lend(&[]).expect_err("nothing").kind(),
                ErrorKind::InvalidInput
            );
            let lent = scope.lend_mut(&mut memory).expect("lend");
            assert!(lent.clone().slice(60..65).is_none());
            let rejected = other
                .post_recv(wr::recv(lent))
                .expect_err("another queue pair");
            assert_eq!(rejected.error(), PostError::WrongQueue);
        });
        let (_, ()) = end.into_result().expect("nothing was posted");
    }
}
