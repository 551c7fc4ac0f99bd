//! What is forgotten or cannot be destroyed leaks, and does nothing worse: its memory stays, and so
//! does all that it stands on.
//!
//! Under Miri this program needs `-Zmiri-ignore-leaks`: leaking is what it is about.

mod fake;

use std::mem::forget;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fake::{FORMS, Pair, open, small};
use fake_provider::{Fake, Live, Profile, Verb};
use ibverbs::{AccessFlags, CqOptions, Rc, SrqOptions, leaked_objects, wr};

/// The count of leaked objects is the process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn forgetting_a_queue_pair_with_requests_in_flight_keeps_all_that_the_device_may_touch() {
    let _alone = alone();
    for form in FORMS {
        let mut pair = Pair::new(form);
        pair.fake.stall();
        pair.receives(2);
        let buf = pair.buf(b"still here");
        pair.a.post_send(wr::send(buf)).expect("send");
        let Pair {
            a,
            b,
            cq,
            pool,
            pd,
            context,
            fake,
        } = pair;
        forget(a);
        forget(b);
        drop((cq, pool, pd, context));
        assert_eq!(
            fake.live(),
            Live {
                contexts: 1,
                pds: 1,
                mrs: 1,
                cqs: 1,
                qps: 2,
                ..Live::default()
            }
        );
        fake.resume(); // the device reads and writes what is in flight
        assert_eq!(fake.take_violations(), Vec::<String>::new());
    }
}

#[test]
#[allow(
    clippy::forget_non_drop,
    reason = "forgetting must do no harm, whether the type has a Drop or not"
)]
fn forgetting_anything_else_leaks_and_nothing_worse() {
    let _alone = alone();
    for form in FORMS {
        let mut pair = Pair::new(form);
        pair.receives(3);
        for _ in 0..3 {
            pair.a.post_send(wr::send(wr::Inline(b"x"))).expect("send");
        }
        forget(pair.cq.poll().expect("poll").next().expect("one"));
        forget(pair.cq.poll().expect("poll"));
        drop(pair.retire());
        let frozen = pair.buf(b"frozen").freeze();
        pair.a.hold(&frozen).expect("hold");
        forget(frozen);
        forget(pair.buf(b"buffer"));
        forget(pair.pd.shared(8, AccessFlags::REMOTE_READ).expect("region"));
        forget(pair.pd.sink(8).expect("sink"));
        forget(pair.context.create_comp_channel().expect("channel"));
        forget(pair.pool.clone());
        forget(pair.pd.clone());
        forget(pair.context.clone());
        forget(wr::send(pair.buf(b"request")));
        let retired = {
            pair.receives(1);
            pair.a.post_send(wr::send(wr::Inline(b"y"))).expect("send");
            pair.retire()
        };
        forget(retired);
        let Pair {
            a,
            b,
            cq,
            pool,
            pd,
            context,
            fake,
        } = pair;
        drop((a, b));
        forget(cq);
        drop((pool, pd, context));
        assert_eq!(fake.live().qps, 0, "a queue pair goes when it is dropped");
        assert_eq!(fake.take_violations(), Vec::<String>::new());
    }
}

#[test]
fn a_queue_pair_that_cannot_be_destroyed_is_leaked_with_all_that_it_guards() {
    let _alone = alone();
    for form in FORMS {
        for by_drop in [false, true] {
            let before = leaked_objects();
            let mut pair = Pair::new(form);
            pair.fake.stall();
            pair.receives(2);
            let sink = pair.pd.sink(8).expect("sink");
            let held = pair.b.hold(&sink).expect("hold");
            pair.b.post_recv(wr::recv(held)).expect("receive");
            let frozen = pair.buf(b"frozen").freeze();
            let held = pair.a.hold(&frozen).expect("hold");
            pair.a.post_send(wr::send(held)).expect("send");
            pair.fake.fail_next(Verb::DestroyQp, libc::EBUSY);
            pair.fake.fail_next(Verb::DestroyQp, libc::EBUSY);
            let Pair {
                a,
                b,
                cq,
                pool,
                pd,
                context,
                fake,
            } = pair;
            if by_drop {
                drop((a, b));
            } else {
                let error = a.destroy().expect_err("refused");
                assert_eq!(
                    (error.call(), error.errno()),
                    ("ibv_destroy_qp", Some(ibverbs::Errno(libc::EBUSY)))
                );
                b.destroy().expect_err("refused");
            }
            assert_eq!(leaked_objects(), before + 2);
            let frozen = frozen.try_thaw().expect_err("the device may still read it");
            drop((frozen, sink, cq, pool, pd, context));
            assert_eq!(
                fake.live(),
                Live {
                    contexts: 1,
                    pds: 1,
                    mrs: 2,
                    cqs: 1,
                    qps: 2,
                    ..Live::default()
                }
            );
            fake.resume(); // the device goes on: Miri sees that the memory is there
            assert_eq!(fake.take_violations(), Vec::<String>::new());
        }
    }
}

#[test]
fn memory_that_cannot_be_deregistered_is_never_freed() {
    let _alone = alone();
    let before = leaked_objects();
    let fake = Fake::extended();
    let pd = open(&fake).alloc_pd().expect("domain");
    let buf = pd.buf(64).expect("buffer");
    let address = buf.as_ptr();
    fake.fail_next(Verb::DeregMr, libc::EBUSY);
    drop((buf, pd));
    assert_eq!(leaked_objects(), before + 1);
    assert_eq!(
        fake.live(),
        Live {
            contexts: 1,
            pds: 1,
            mrs: 1,
            ..Live::default()
        }
    );
    // SAFETY: the point of the test: the memory is still allocated, and zero as it was registered.
    #[allow(
        unsafe_code,
        reason = "looks at memory that safe code cannot reach any more"
    )]
    let byte = unsafe { address.read_volatile() };
    assert_eq!(byte, 0);
    assert_eq!(fake.take_violations(), Vec::<String>::new());
}

#[test]
fn what_cannot_be_destroyed_keeps_what_it_stands_on() {
    let _alone = alone();
    for (verb, live) in [
        (
            Verb::DestroyCq,
            Live {
                contexts: 1,
                cqs: 1,
                channels: 1,
                ..Live::default()
            },
        ),
        (
            Verb::DestroyCompChannel,
            Live {
                contexts: 1,
                channels: 1,
                ..Live::default()
            },
        ),
        (
            Verb::DeallocPd,
            Live {
                contexts: 1,
                pds: 1,
                ..Live::default()
            },
        ),
        (
            Verb::CloseDevice,
            Live {
                contexts: 1,
                ..Live::default()
            },
        ),
    ] {
        let before = leaked_objects();
        let fake = Fake::extended();
        let context = open(&fake);
        let channel = context.create_comp_channel().expect("channel");
        let cq = context
            .create_cq(CqOptions {
                channel: Some(&channel),
                ..CqOptions::default()
            })
            .expect("queue");
        let pd = context.alloc_pd().expect("domain");
        let qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("queue pair");
        fake.fail_next(verb, libc::EBUSY);
        drop((context, channel, cq, pd, qp));
        assert_eq!(fake.live(), live, "{verb:?}");
        assert_eq!(leaked_objects(), before + 1, "{verb:?}");
        assert_eq!(fake.take_violations(), Vec::<String>::new(), "{verb:?}");
    }
}

#[test]
fn a_receiving_half_that_cannot_be_destroyed_keeps_what_it_could_still_receive_into() {
    let _alone = alone();
    let before = leaked_objects();
    let fake = Fake::new(Profile {
        more_verbs: true,
        ..FORMS[0]
    });
    let context = open(&fake);
    let (xrcd, pd) = (
        context.open_xrcd().expect("XRC domain"),
        context.alloc_pd().expect("domain"),
    );
    let cq = context.create_cq(CqOptions::default()).expect("queue");
    let mut srq = pd
        .create_xrc_srq(&xrcd, &cq, SrqOptions::default())
        .expect("shared receive queue");
    let receiver = xrcd.create_xrc_recv_qp().expect("receiving half");
    let pool = pd.pool(2, 64).expect("pool");
    srq.post_recv(wr::recv(pool.take().expect("free")))
        .expect("room");
    drop(srq);
    fake.fail_next(Verb::DestroyQp, libc::EBUSY);
    receiver.destroy().expect_err("the driver refuses");
    assert_eq!((leaked_objects() - before, pool.available()), (1, 1));
    drop((xrcd, pd, cq, pool, context));
    assert_eq!(
        fake.live(),
        Live {
            contexts: 1,
            pds: 1,
            mrs: 1,
            qps: 1,
            xrcds: 1,
            ..Live::default()
        }
    );
}
