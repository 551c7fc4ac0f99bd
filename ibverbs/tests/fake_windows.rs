//! Memory windows: what a peer reaches through them, until when, and that their region is there as
//! long, whatever is dropped first.

mod fake;

use std::thread;

use fake::{PROFILES, Pair};
use fake_provider::{Live, PostFault, Queue, Verb};
use ibverbs::{
    AccessFlags, Direction, ErrorKind, PostError, RemoteMemory, SharedRegion, WcOpcode, WcStatus,
    mw::{BoundWindow, Type1, Type2, Window},
    wr,
};

const OPEN: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);

/// A region that only windows open, with these bytes at its start.
fn region(pair: &Pair, bytes: &[u8]) -> SharedRegion {
    let region = pair.pd.shared(64, AccessFlags::MW_BIND).expect("region");
    region.write(0, bytes).expect("in range");
    region
}

/// A window of type 2 to all of a region, bound by a request of `b`.
fn bound(pair: &mut Pair, region: &SharedRegion) -> BoundWindow<Type2> {
    let window = pair.pd.alloc_mw::<Type2>().expect("window");
    let (bound, binding) = window.bind(region, OPEN).expect("binding");
    pair.b.post_send(wr::bind(binding)).expect("bind");
    bound
}

/// How a read by `a` ends, and what it brought.
fn read(pair: &mut Pair, remote: RemoteMemory) -> (WcStatus, Vec<u8>) {
    let buf = pair.pool.take().expect("a free buffer");
    pair.a.post_send(wr::read(buf, remote)).expect("read");
    let (mut of_a, _) = pair.retire();
    let done = of_a.remove(0);
    (
        done.status(),
        done.into_buf().expect("posted with a buffer").to_vec(),
    )
}

fn bound_successfully(pair: &mut Pair) {
    let (_, of_b) = pair.retire();
    assert_eq!(
        of_b.iter()
            .map(|done| (done.status(), done.opcode()))
            .collect::<Vec<_>>(),
        [(WcStatus::SUCCESS, WcOpcode::BIND_MW)]
    );
}

#[test]
fn a_window_opens_its_part_of_the_region_until_it_is_invalidated() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        let region = region(&pair, b"01234567");
        let mut window = pair.pd.alloc_mw::<Type2>().expect("window");
        for _ in 0..2 {
            let part = region.slice(2..6).expect("in range");
            let (bound, binding) = window
                .bind(&part, AccessFlags::REMOTE_READ)
                .expect("binding");
            let remote = bound.remote();
            pair.b.post_send(wr::bind(binding)).expect("bind");
            bound_successfully(&mut pair);
            assert_eq!(
                read(&mut pair, remote),
                (WcStatus::SUCCESS, b"2345".to_vec())
            );
            pair.b.post_send(wr::invalidate(bound)).expect("invalidate");
            let (_, mut of_b) = pair.retire();
            window = of_b.remove(0).into_window().expect("the free window");
        }
        let (bound, binding) = window
            .bind(&region, AccessFlags::REMOTE_READ)
            .expect("binding");
        let remote = bound.remote();
        let both = pair.b.batch(|batch| -> ibverbs::Result<()> {
            batch.send(wr::bind(binding).unsignaled())?;
            batch.send(wr::invalidate(bound).fenced())?;
            Ok(())
        });
        both.expect("posted");
        let (_, mut of_b) = pair.retire();
        assert!(of_b.remove(0).into_window::<Type2>().is_some());
        assert_eq!(
            read(&mut pair, remote).0,
            WcStatus::REM_ACCESS_ERR,
            "the key is dead"
        );
        drop(region);
        pair.finish();
    }
}

#[test]
fn a_bound_window_keeps_its_region() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        let region = region(&pair, b"kept");
        let bound = bound(&mut pair, &region);
        bound_successfully(&mut pair);
        let remote = bound.remote().slice(0, 4).expect("in range");
        let still = region.try_into_buf().expect_err("a window is bound to it");
        drop(still);
        // Nothing but the window keeps the memory, which the peer reads and writes.
        assert_eq!(pair.fake.live().mrs, 2);
        assert_eq!(
            read(&mut pair, remote),
            (WcStatus::SUCCESS, b"kept".to_vec())
        );
        pair.a
            .post_send(wr::write(wr::Inline(b"more"), remote))
            .expect("write");
        pair.retire().0[0].ok().expect("written");
        assert_eq!(read(&mut pair, remote).1, b"more");
        drop(bound);
        assert_eq!(
            (pair.fake.live().mrs, pair.fake.live().mws),
            (1, 0),
            "it goes with the window"
        );
        assert_eq!(read(&mut pair, remote).0, WcStatus::REM_ACCESS_ERR);
        pair.finish();
    }
}

#[test]
fn a_region_comes_back_when_its_windows_are_invalidated() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        let region = region(&pair, b"back");
        let bound = bound(&mut pair, &region);
        bound_successfully(&mut pair);
        pair.b.post_send(wr::invalidate(bound)).expect("invalidate");
        let still = region
            .try_into_buf()
            .expect_err("the request has not completed yet, as far as is known");
        let (_, mut of_b) = pair.retire();
        let window = of_b
            .remove(0)
            .into_window::<Type2>()
            .expect("a free buffer");
        let mut buf = still
            .into_region()
            .try_into_buf()
            .expect("no peer reaches it");
        assert_eq!(&buf[..4], b"back");
        buf.fill(7);
        drop((window, buf));
        pair.finish();
    }
}

/// What is dropped in each order: the window, its region, both queue pairs, the rest.
fn orders() -> impl Iterator<Item = [usize; 4]> {
    let places = || 0..4_usize;
    let three = places().flat_map(move |one| {
        places().flat_map(move |two| places().map(move |three| [one, two, three]))
    });
    three
        .filter(|&[one, two, three]| one != two && two != three && one != three)
        .map(|[one, two, three]| [one, two, three, 6 - one - two - three])
}

#[test]
fn window_region_and_queue_pairs_may_be_dropped_in_any_order() {
    assert_eq!(orders().count(), 24);
    for (index, order) in orders().enumerate() {
        // Miri takes its time: every fifth order there, which are of both forms, and end with each
        // thing.
        if cfg!(miri) && index % 5 != 0 {
            continue;
        }
        for stalled in [false, true] {
            let mut pair = Pair::new(PROFILES[index % 2]);
            let region = region(&pair, b"x");
            if stalled {
                pair.fake.stall();
            }
            let bound = bound(&mut pair, &region);
            let Pair {
                a,
                b,
                cq,
                pool,
                pd,
                context,
                fake,
            } = pair;
            let mut all: [Option<Box<dyn Send>>; 4] = [
                Some(Box::new(bound)),
                Some(Box::new(region)),
                Some(Box::new((a, b))),
                Some(Box::new((cq, pool, pd, context))),
            ];
            for place in order {
                drop(all[place].take());
            }
            fake.assert_clean();
        }
    }
}

#[test]
fn a_binding_that_is_not_posted_binds_nothing() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        let region = region(&pair, b"closed");
        let capacity = pair.b.caps().max_send_wr;
        pair.fake.stall();
        for _ in 0..capacity {
            pair.b.post_send(wr::send(wr::Empty)).expect("a free slot");
        }
        let window = pair.pd.alloc_mw::<Type2>().expect("window");
        let (bound, binding) = window.bind(&region, OPEN).expect("binding");
        let rejected = pair.b.post_send(wr::bind(binding)).expect_err("full");
        assert_eq!(rejected.error(), PostError::QueueFull { capacity });
        let remote = bound.remote();
        drop(rejected.into_payload().expect("the posted buffer"));
        for _ in 0..capacity {
            pair.a.post_recv(wr::recv(wr::Empty)).expect("receive");
        }
        pair.fake.resume();
        drop(pair.retire());
        // A batch that fails posts nothing either.
        let window = pair.pd.alloc_mw::<Type2>().expect("window");
        let (other, binding) = window.bind(&region, OPEN).expect("binding");
        let failed = pair.b.batch(|batch| -> ibverbs::Result<()> {
            batch.send(wr::bind(binding))?;
            Err(ibverbs::Error::from(
                batch
                    .send(wr::send(wr::Inline(&[0; 999])))
                    .expect_err("too long"),
            ))
        });
        assert!(failed.is_err());
        assert_eq!(read(&mut pair, other.remote()).0, WcStatus::REM_ACCESS_ERR);
        assert_ne!(other.remote().rkey, remote.rkey);
        drop((bound, other, region));
        pair.finish();
    }
}

#[test]
fn a_binding_in_doubt_keeps_window_and_region_until_the_queue_pair_goes() {
    for profile in PROFILES {
        for executed in [false, true] {
            let mut pair = Pair::new(profile);
            let region = region(&pair, b"x");
            let window = pair.pd.alloc_mw::<Type2>().expect("window");
            let (bound, binding) = window.bind(&region, OPEN).expect("binding");
            let fault = PostFault {
                queue: Queue::Send,
                at: 0,
                errno: libc::ENOMEM,
                sets_bad_wr: false,
                executed,
            };
            pair.fake.fail_post(fault);
            let rejected = pair.b.post_send(wr::bind(binding)).expect_err("in doubt");
            assert!(rejected.into_payload().is_none());
            drop((bound, region));
            assert_eq!((pair.fake.live().mrs, pair.fake.live().mws), (2, 1));
            if executed {
                bound_successfully(&mut pair);
                assert_eq!((pair.fake.live().mrs, pair.fake.live().mws), (1, 0));
            }
            pair.finish();
        }
    }
}

#[test]
fn a_peer_invalidates_by_a_message() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        let (region, other) = (region(&pair, b"x"), region(&pair, b"y"));
        let bound = bound(&mut pair, &region);
        bound_successfully(&mut pair);
        pair.receives(2);
        pair.a
            .post_send(wr::send(wr::Inline(b"not yet")))
            .expect("send");
        let (_, mut of_b) = pair.retire();
        let bound = bound
            .invalidated_by(&of_b.remove(0))
            .expect_err("a message as any other");
        pair.a
            .post_send(wr::send_with_inv(wr::Inline(b"done"), bound.remote().rkey))
            .expect("send");
        let (_, mut of_b) = pair.retire();
        let received = of_b.remove(0);
        assert_eq!(
            (received.direction(), received.invalidated_rkey()),
            (Direction::Recv, Some(bound.remote().rkey))
        );
        let window = bound.invalidated_by(&received).expect("invalidated");
        // The peer's word frees no memory.
        drop(region);
        assert_eq!(pair.fake.live().mrs, 3);
        assert_eq!(
            window
                .bind(&other, OPEN)
                .expect_err("another region")
                .kind(),
            ErrorKind::Mismatch
        );
        assert_eq!(pair.fake.live().mrs, 2);
        drop((received, other));
        pair.finish();
    }
}

#[test]
fn a_window_that_its_queue_pair_frees_in_another_thread_is_not_bound_anew() {
    for _ in 0..if cfg!(miri) { 3 } else { 100 } {
        let mut pair = Pair::new(PROFILES[0]);
        let region = region(&pair, b"x");
        let bound = bound(&mut pair, &region);
        bound_successfully(&mut pair);
        pair.receives(1);
        pair.a
            .post_send(wr::send_with_inv(wr::Empty, bound.remote().rkey))
            .expect("send");
        let received = pair.retire().1.remove(0);
        let Pair {
            a,
            b,
            cq,
            pool,
            pd,
            context,
            fake,
        } = pair;
        thread::scope(|scope| {
            scope.spawn(|| drop(b));
            if let Ok(window) = bound.invalidated_by(&received) {
                drop(window.bind(&region, OPEN).expect("to the same region"));
            }
        });
        drop((a, cq, pool, pd, context, region, received));
        fake.assert_clean();
    }
}

#[test]
fn a_message_that_invalidates_what_is_not_bound_breaks_the_connection() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        pair.receives(1);
        pair.a
            .post_send(wr::send_with_inv(wr::Empty, 0x1234))
            .expect("send");
        let (of_a, of_b) = pair.retire();
        assert!(!of_a[0].is_success() && !of_b[0].is_success());
        drop((of_a, of_b));
        pair.finish();
    }
}

#[test]
fn windows_of_type_1_are_bound_and_unbound_by_their_verb() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        let region = region(&pair, b"type 1");
        let mut window = pair.pd.alloc_mw::<Type1>().expect("window");
        for _ in 0..2 {
            let bound = pair.b.bind_mw(window, &region, OPEN, 7).expect("bind");
            bound_successfully(&mut pair);
            let remote = bound.remote().slice(0, 6).expect("in range");
            assert_eq!(
                read(&mut pair, remote),
                (WcStatus::SUCCESS, b"type 1".to_vec())
            );
            pair.b.unbind_mw(bound, 8).expect("unbind");
            let (_, mut of_b) = pair.retire();
            assert_eq!(of_b[0].tag(), 8);
            window = of_b
                .remove(0)
                .into_window::<Type1>()
                .expect("the free window");
        }
        // What the driver refuses it may have queued: the window stays until the queue pair goes.
        pair.fake.fail_next(Verb::BindMw, libc::ENOMEM);
        let error = pair
            .b
            .bind_mw(window, &region, OPEN, 0)
            .expect_err("refused");
        assert_eq!(
            (error.call(), error.errno().map(|errno| errno.0)),
            ("ibv_bind_mw", Some(libc::ENOMEM))
        );
        drop(region);
        assert_eq!((pair.fake.live().mrs, pair.fake.live().mws), (2, 1));
        pair.finish();
    }
}

#[test]
fn windows_of_both_types_go_after_a_queue_pair_that_was_destroyed_first() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        let region = region(&pair, b"x");
        let of_type_2 = bound(&mut pair, &region);
        let window = pair.pd.alloc_mw::<Type1>().expect("window");
        let of_type_1 = pair.b.bind_mw(window, &region, OPEN, 0).expect("bind");
        drop(pair.retire());
        let Pair {
            a,
            b,
            cq,
            pool,
            pd,
            context,
            fake,
        } = pair;
        b.destroy().expect("destroyed");
        // Those of type 2 end with their queue pair; those of type 1 stay open to the other peers
        // of the domain.
        assert_eq!(
            fake.live(),
            Live {
                contexts: 1,
                pds: 1,
                mrs: 2,
                mws: 1,
                cqs: 1,
                qps: 1,
                ..Live::default()
            }
        );
        let mut other = pd
            .create_qp::<ibverbs::Rc>(&cq, &cq, fake::small())
            .expect("another");
        let rejected = other.post_send(wr::invalidate(of_type_2));
        drop((rejected, of_type_1, region, other, a, cq, pool, pd, context));
        fake.assert_clean();
    }
}

#[test]
fn what_a_window_cannot_be_bound_to_is_refused_and_the_window_freed() {
    let mut pair = Pair::new(PROFILES[0]);
    let region = region(&pair, b"x");
    let closed = pair.pd.shared(8, AccessFlags::REMOTE_READ).expect("region");
    let elsewhere = pair.context.alloc_pd().expect("protection domain");
    let foreign = elsewhere.shared(8, AccessFlags::MW_BIND).expect("region");
    let nothing = region.slice(8..8).expect("in range");
    let fresh = |pair: &Pair| -> Window<Type2> { pair.pd.alloc_mw().expect("window") };
    for (region, access, kind) in [
        (&closed, OPEN, ErrorKind::InvalidInput),
        (&foreign, OPEN, ErrorKind::Mismatch),
        (&nothing, OPEN, ErrorKind::InvalidInput),
        (&region, AccessFlags::LOCAL_WRITE, ErrorKind::InvalidInput),
    ] {
        assert_eq!(
            fresh(&pair)
                .bind(region, access)
                .expect_err("refused")
                .kind(),
            kind
        );
        assert_eq!(pair.fake.live().mws, 0);
    }
    let (bound, binding) = elsewhere
        .alloc_mw::<Type2>()
        .expect("window")
        .bind(&foreign, OPEN)
        .expect("binding");
    let rejected = pair
        .b
        .post_send(wr::bind(binding))
        .expect_err("another domain");
    assert_eq!(rejected.error(), PostError::WrongDomain);
    let window = elsewhere.alloc_mw::<Type1>().expect("window");
    let error = pair
        .b
        .bind_mw(window, &foreign, OPEN, 0)
        .expect_err("another domain");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    drop((rejected, bound, region, closed, foreign, nothing, elsewhere));
    pair.finish();
}

#[test]
fn windows_move_between_threads() {
    let mut pair = Pair::new(PROFILES[0]);
    let region = region(&pair, b"x");
    let window = bound(&mut pair, &region);
    let (pair, window) = std::thread::spawn(move || {
        bound_successfully(&mut pair);
        pair.b
            .post_send(wr::invalidate(window))
            .expect("invalidate");
        let (_, mut of_b) = pair.retire();
        let window = of_b
            .remove(0)
            .into_window::<Type2>()
            .expect("a free buffer");
        (pair, window)
    })
    .join()
    .expect("no panic");
    drop((region, window));
    pair.finish();
}
