//! Objects that are forgotten or cannot be destroyed leak safely: their memory and their parents
//! stay alive.
//!
//! Under Miri this program needs `-Zmiri-ignore-leaks`, because it leaks on purpose.

mod avoided;
#[cfg(feature = "mlx5")]
mod exposed;
#[path = "../fake/fixture.rs"]
mod fixture;

use std::mem::forget;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fake_provider::{AfterDestroy, Fake, Live, Profile, Provider, Verb};
use fixture::{Aligned, IN_ORDER, Owner, PROFILES, Pair, Words, open, path, small};
use ibverbs::mr::{Backing, CallerMemory};
use ibverbs::qp::QpChange;
use ibverbs::{
    AccessFlags, CqOptions, ErrorKind, MemoryOptions, QpState, Rc, SrqOptions, leaked_objects,
    mw::Type1, wr,
};

/// The tests leave objects of their devices on purpose.
const LEAKS: bool = true;

/// Lets one test run at a time, because the count of leaked objects is per process.
fn exclusive() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_forgotten_queue_pair_keeps_its_memory_registered() {
    let _guard = exclusive();
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        pair.fake.stall();
        pair.post_recvs(2);
        let buf = pair.buf(b"in flight");
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
        fake.resume(); // The device executes the requests in flight.
        assert_eq!(fake.take_violations(), Vec::<String>::new());
    }
}

#[test]
#[allow(
    clippy::forget_non_drop,
    reason = "forgetting must be harmless, with or without a Drop implementation"
)]
fn forgetting_other_objects_only_leaks_them() {
    let _guard = exclusive();
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        pair.post_recvs(3);
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
            pair.post_recvs(1);
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
        assert_eq!(fake.live().qps, 0, "a dropped queue pair is destroyed");
        assert_eq!(fake.take_violations(), Vec::<String>::new());
    }
}

#[test]
fn an_undestroyable_queue_pair_leaks_with_its_memory() {
    let _guard = exclusive();
    for profile in PROFILES {
        for dropped in [false, true] {
            let before = leaked_objects();
            let mut pair = Pair::new(profile);
            pair.fake.stall();
            pair.post_recvs(2);
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
            if dropped {
                drop((a, b));
            } else {
                let error = a.destroy().expect_err("EBUSY");
                assert_eq!(
                    (error.call(), error.errno()),
                    ("ibv_destroy_qp", Some(ibverbs::Errno(libc::EBUSY)))
                );
                b.destroy().expect_err("EBUSY");
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
            // The device executes the requests. Miri checks that their memory still exists.
            fake.resume();
            assert_eq!(fake.take_violations(), Vec::<String>::new());
        }
    }
}

#[test]
fn a_busy_device_keeps_the_memory_it_uses() {
    let _guard = exclusive();
    for profile in PROFILES {
        let before = leaked_objects();
        let mut pair = Pair::new(profile);
        pair.fake.stall();
        pair.post_recvs(1);
        let buf = pair.buf(b"in flight");
        pair.a.post_send(wr::send(buf)).expect("send");
        pair.fake.set(|profile| profile.busy = true);
        let Pair {
            a,
            b,
            cq,
            pool,
            pd,
            context,
            fake,
        } = pair;
        drop((a, b, cq, pool, pd, context));
        assert_eq!(leaked_objects(), before + 2, "the queue pairs");
        assert_eq!(
            (fake.live().qps, fake.live().mrs, fake.live().cqs),
            (2, 1, 1)
        );
        // The device executes the requests. Miri checks that their memory still exists.
        fake.resume();
        assert_eq!(fake.take_violations(), Vec::<String>::new());
    }
}

#[test]
fn memory_that_cannot_be_deregistered_is_never_freed() {
    let _guard = exclusive();
    let before = leaked_objects();
    let fake = Fake::extended();
    let pd = open(&fake).alloc_pd().expect("protection domain");
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
    #[allow(
        unsafe_code,
        reason = "reads memory that safe code cannot reach any more"
    )]
    // SAFETY: the buffer leaked, so its memory is still allocated and contains zeros.
    let byte = unsafe { address.read_volatile() };
    assert_eq!(byte, 0);
    assert_eq!(fake.take_violations(), Vec::<String>::new());
}

#[test]
fn an_undestroyable_object_keeps_its_parents() {
    let _guard = exclusive();
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
            .create_cq(CqOptions::new().channel(&channel))
            .expect("completion queue");
        let pd = context.alloc_pd().expect("protection domain");
        let qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("queue pair");
        fake.fail_next(verb, libc::EBUSY);
        drop((context, channel, cq, pd, qp));
        assert_eq!(fake.live(), live, "{verb:?}");
        assert_eq!(leaked_objects(), before + 1, "{verb:?}");
        assert_eq!(fake.take_violations(), Vec::<String>::new(), "{verb:?}");
    }
}

#[test]
fn an_undestroyable_xrc_queue_pair_keeps_its_receives() {
    let _guard = exclusive();
    let before = leaked_objects();
    let fake = Fake::new(Profile {
        more_verbs: true,
        ..PROFILES[0]
    });
    let context = open(&fake);
    let (xrcd, pd) = (
        context.open_xrcd().expect("XRC domain"),
        context.alloc_pd().expect("protection domain"),
    );
    let cq = context
        .create_cq(CqOptions::default())
        .expect("completion queue");
    let mut srq = pd
        .create_xrc_srq(&xrcd, &cq, SrqOptions::default())
        .expect("shared receive queue");
    let receiver = xrcd.create_xrc_recv_qp().expect("XRC receive queue pair");
    let pool = pd.pool(2, 64).expect("pool");
    srq.post_recv(wr::recv(pool.take().expect("a free buffer")))
        .expect("a free slot");
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

#[test]
fn a_window_that_cannot_be_freed_keeps_its_region() {
    let _guard = exclusive();
    for profile in IN_ORDER {
        let before = leaked_objects();
        let mut pair = Pair::new(profile);
        let region = pair.pd.shared(64, AccessFlags::MW_BIND).expect("region");
        let window = pair.pd.alloc_mw::<Type1>().expect("window");
        let access = AccessFlags::REMOTE_WRITE;
        let bound = pair.b.bind_mw(window, &region, access, 1).expect("bound");
        drop(pair.retire());
        // The device may still write to the region through the window.
        pair.fake.fail_next(Verb::DeallocMw, libc::EBUSY);
        drop((bound, region));
        assert_eq!(leaked_objects(), before + 1);
        assert_eq!((pair.fake.live().mws, pair.fake.live().mrs), (1, 2));
        let Pair {
            a,
            b,
            cq,
            pool,
            pd,
            context,
            fake,
        } = pair;
        drop((a, b, cq, pool, pd, context));
        let live = fake.live();
        assert_eq!((live.mws, live.mrs, live.pds), (1, 1, 1));
        assert_eq!(fake.take_violations(), Vec::<String>::new());
    }
}

/// The provider follows the address of a queue pair that was destroyed, or may do so.
#[test]
fn a_queue_pair_with_requests_is_not_destroyed() {
    let _guard = exclusive();
    for provider in [Provider::Qedr, Provider::Cxgb4, Provider::Unknown] {
        for profile in PROFILES {
            let leaked = leaked_objects();
            let mut pair = Pair::new(Profile {
                provider,
                after_destroy: AfterDestroy::Poison,
                ..profile
            });
            pair.post_recvs(2);
            let buf = pair.buf(b"x");
            pair.a.post_send(wr::send(buf)).expect("send");
            let Pair {
                a,
                b,
                mut cq,
                pool,
                pd,
                context,
                fake,
            } = pair;
            let error = b.destroy().expect_err("its completion was not polled");
            assert_eq!(error.kind(), ErrorKind::WrongState);
            assert!(error.help().is_some());
            drop(a);
            assert_eq!(leaked_objects(), leaked + 2);
            assert_eq!(cq.poll().expect("poll").len(), 2);
            drop((cq, pool, pd, context));
            let live = fake.live();
            assert_eq!((live.qps, live.mrs), (2, 1));
        }
    }
}

/// The device may report a request again that its provider has completed as failed.
#[test]
fn a_queue_pair_with_a_failed_request_is_not_destroyed() {
    let _guard = exclusive();
    for provider in [Provider::Cxgb4, Provider::Unknown] {
        let mut pair = Pair::new(Profile {
            provider,
            writes_after_failures: true,
            ..Profile::RXE
        });
        pair.post_recvs(1);
        pair.b.to_error().expect("ERR state");
        let (_, failed) = pair.retire();
        assert_eq!(failed.len(), 1);
        drop(failed);
        let Pair {
            a,
            b,
            mut cq,
            pool,
            pd,
            context,
            fake,
        } = pair;
        let leaked = leaked_objects();
        let error = b.destroy().expect_err("a request has failed");
        assert_eq!(error.kind(), ErrorKind::WrongState);
        assert_eq!(leaked_objects(), leaked + 1);
        assert_eq!(cq.poll().expect("the device writes").len(), 0);
        drop((a, cq, pool, pd, context));
        assert_eq!(fake.live().qps, 1);
    }
}

/// The second completion of a receive without memory would be that of a receive of a new queue pair
/// with the same number.
#[test]
fn a_failed_receive_without_memory_keeps_its_queue_pair() {
    let _guard = exclusive();
    let mut pair = Pair::new(Profile {
        provider: Provider::Cxgb4,
        after_destroy: AfterDestroy::FindByNumber,
        completes_flushed_receives: true,
        ..Profile::RXE
    });
    let receive = wr::recv(wr::Empty);
    pair.b.post_recv(receive).expect("receive");
    pair.b.to_error().expect("ERR state");
    let failed = pair.cq.poll_one().expect("poll").expect("the failure");
    assert!(!pair.b.retire(failed).expect("in flight").is_success());
    let reset = pair.b.modify(&QpChange::to(QpState::RESET));
    assert!(reset.is_err(), "the number stays the same");
    let leaked = leaked_objects();
    let (b, mut cq) = (pair.b, pair.cq);
    drop(b);
    let mut new = pair.pd.create_qp::<Rc>(&cq, &cq, small()).expect("qp");
    new.init(&path()).expect("INIT state");
    let buf = pair.pool.take().expect("a free buffer");
    new.post_recv(wr::recv(buf)).expect("receive");
    for completion in cq.poll().expect("poll") {
        let retired = new.retire(completion);
        assert!(retired.is_err(), "a posted buffer was given away");
    }
    assert_eq!(leaked_objects(), leaked + 1);
}

/// The memory of a caller, which records that it is no longer used.
struct Released(&'static AtomicBool);

impl Drop for Released {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn memory_is_released_only_after_deregistration() {
    let _guard = exclusive();
    for fails in [false, true] {
        let released: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let bytes: &'static mut [u8] = Vec::leak(vec![0; 64]);
        let start = NonNull::from(bytes).cast();
        #[allow(unsafe_code, reason = "provides memory of the caller")]
        // SAFETY: the memory is never freed, and no other code uses it.
        let memory = unsafe { CallerMemory::new(start, 64, Released(released)) };
        let fake = Fake::extended();
        let pd = open(&fake).alloc_pd().expect("domain");
        let options = MemoryOptions::new().backing(Backing::Caller(memory));
        let pool = pd.pool_with(1, 64, options).expect("pool");
        if fails {
            fake.fail_next(Verb::DeregMr, libc::EBUSY);
        }
        drop((pool, pd));
        assert_eq!(released.load(Ordering::Relaxed), !fails);
        assert_eq!(fake.live().mrs, usize::from(fails));
    }
}

/// Soft-iWARP may read it after it was deregistered, and its caller may use it for anything.
#[test]
fn memory_of_the_caller_that_may_be_read_late_is_not_released() {
    let _guard = exclusive();
    for (access, is_released) in [
        (AccessFlags::REMOTE_READ, false),
        (AccessFlags::REMOTE_WRITE, true),
    ] {
        let released: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let words: &'static mut [u64] = Vec::leak(vec![0; 8]);
        let start = NonNull::from(words).cast();
        #[allow(unsafe_code, reason = "provides memory of the caller")]
        // SAFETY: the memory is never freed, and no other code uses it.
        let memory = unsafe { CallerMemory::new(start, 64, Released(released)) };
        assert!(!memory.is_empty());
        #[allow(unsafe_code, reason = "provides memory of the caller")]
        // SAFETY: no byte is used.
        let none = unsafe { CallerMemory::new(start, 0, ()) };
        assert!(none.is_empty());
        let fake = Fake::new(Profile::SIW);
        let pd = open(&fake).alloc_pd().expect("domain");
        let options = MemoryOptions::new().backing(Backing::Caller(memory));
        drop((pd.shared_with(64, access, options).expect("region"), pd));
        assert_eq!(released.load(Ordering::Relaxed), is_released);
        assert_eq!(fake.live().mrs, 0);
    }
}

#[test]
fn peers_read_a_shared_value_and_siw_never_frees_it() {
    let _guard = exclusive();
    for profile in [Profile::RXE, Profile::SIW] {
        let mut pair = Pair::new(profile);
        let alive = Arc::new(());
        let owner = Owner(b"value".to_vec(), Arc::clone(&alive));
        let frozen = pair.pd.frozen_shared_from(owner).expect("frozen");
        let remote = frozen.remote().expect("peers can read it");
        let into = pair
            .pd
            .shared(5, AccessFlags::REMOTE_WRITE)
            .expect("region");
        let held = pair.a.hold(&into).expect("hold");
        pair.a.post_send(wr::read(held, remote)).expect("read");
        drop(pair.retire());
        let mut seen = [0; 5];
        into.read(0, &mut seen).expect("in range");
        assert_eq!(&seen, b"value");
        pair.fake.finish_transmissions();
        let is_siw = profile == Profile::SIW;
        match frozen.try_into_owner::<Owner>() {
            Ok(owner) => drop(owner),
            Err(frozen) => {
                assert!(is_siw, "the device has finished");
                drop(frozen);
            }
        }
        assert_eq!(Arc::strong_count(&alive), if is_siw { 2 } else { 1 });
        let alive = Arc::new(());
        let owner = Words(Box::new(Aligned([0; 64])), Arc::clone(&alive));
        drop(pair.pd.shared_from(owner, AccessFlags::REMOTE_READ));
        assert_eq!(Arc::strong_count(&alive), if is_siw { 2 } else { 1 });
        drop((
            into,
            pair.a,
            pair.b,
            pair.cq,
            pair.pool,
            pair.pd,
            pair.context,
        ));
        pair.fake.assert_clean();
    }
}
