//! Memory windows: access, invalidation, and the region that a bound window keeps alive.

use crate::fixture::{self, IN_ORDER, PROFILES, Pair, pairs};
use fake_provider::{Live, PostFault, Queue, Verb};
use ibverbs::{
    AccessFlags, ErrorKind, PostError, RemoteMemory, SharedRegion, WcOpcode, WcStatus,
    mw::{BoundWindow, Type1, Type2, Window},
    wr,
};

pub(crate) const REMOTE_RW: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);

/// Creates a region that peers can access only through windows, with `bytes` at its start.
pub(crate) fn region(pair: &Pair, bytes: &[u8]) -> SharedRegion {
    let region = pair.pd.shared(64, AccessFlags::MW_BIND).expect("region");
    region.write(0, bytes).expect("in range");
    region
}

/// Binds a type 2 window to the whole region, with a request of `b`.
pub(crate) fn bind_window(pair: &mut Pair, region: &SharedRegion) -> BoundWindow<Type2> {
    let window = pair.pd.alloc_mw::<Type2>().expect("window");
    let (bound, binding) = window.bind(region, REMOTE_RW).expect("binding");
    pair.b.post_send(wr::bind(binding)).expect("bind");
    bound
}

/// Has `a` read from `remote`. Returns the status and the bytes of the RDMA READ.
pub(crate) fn read(pair: &mut Pair, remote: RemoteMemory) -> (WcStatus, Vec<u8>) {
    let buf = pair.pool.take().expect("a free buffer");
    pair.a.post_send(wr::read(buf, remote)).expect("read");
    let (mut of_a, _) = pair.retire();
    let done = of_a.remove(0);
    (
        done.status(),
        done.into_buf().expect("posted with a buffer").to_vec(),
    )
}

/// Retires the bind request and checks that it succeeded.
pub(crate) fn retire_bind(pair: &mut Pair) {
    let (_, of_b) = pair.retire();
    assert_eq!(
        of_b.iter()
            .map(|done| (done.status(), done.opcode()))
            .collect::<Vec<_>>(),
        [(WcStatus::SUCCESS, WcOpcode::BIND_MW)]
    );
}

#[test]
fn a_window_grants_access_until_it_is_invalidated() {
    for mut pair in pairs(PROFILES) {
        let region = region(&pair, b"01234567");
        let mut window = pair.pd.alloc_mw::<Type2>().expect("window");
        for _ in 0..2 {
            let part = region.slice(2..6).expect("in range");
            let (bound, binding) = window
                .bind(&part, AccessFlags::REMOTE_READ)
                .expect("binding");
            let remote = bound.remote();
            pair.b.post_send(wr::bind(binding)).expect("bind");
            retire_bind(&mut pair);
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
        let batch = pair.b.batch(|batch| -> ibverbs::Result<()> {
            batch.send(wr::bind(binding).signaled(false))?;
            batch.send(wr::invalidate(bound).fenced(true))?;
            Ok(())
        });
        batch.expect("bind and invalidate");
        let (_, mut of_b) = pair.retire();
        assert!(
            of_b.pop()
                .expect("invalidation")
                .into_window::<Type2>()
                .is_some()
        );
        assert_eq!(
            read(&mut pair, remote).0,
            WcStatus::REM_ACCESS_ERR,
            "the rkey is invalid"
        );
    }
}

#[test]
fn a_bound_window_keeps_its_region() {
    for mut pair in pairs(PROFILES) {
        let region = region(&pair, b"kept");
        let bound = bind_window(&mut pair, &region);
        retire_bind(&mut pair);
        let remote = bound.remote().slice(0..4).expect("in range");
        let not_reclaimed = region.try_into_buf().expect_err("a window is bound to it");
        drop(not_reclaimed);
        // Only the window keeps the memory, which the peer reads and writes.
        assert_eq!(pair.fake.live().mrs, 2);
        assert_eq!(
            read(&mut pair, remote),
            (WcStatus::SUCCESS, b"kept".to_vec())
        );
        pair.a
            .post_send(wr::write(wr::Inline(b"more"), remote))
            .expect("write");
        pair.retire().0[0].check().expect("written");
        assert_eq!(read(&mut pair, remote).1, b"more");
        drop(bound);
        assert_eq!(
            (pair.fake.live().mrs, pair.fake.live().mws),
            (1, 0),
            "the region is released with the window"
        );
        assert_eq!(read(&mut pair, remote).0, WcStatus::REM_ACCESS_ERR);
    }
}

#[test]
fn a_region_is_reclaimed_after_window_invalidation() {
    for mut pair in pairs(IN_ORDER) {
        let region = region(&pair, b"kept");
        let bound = bind_window(&mut pair, &region);
        retire_bind(&mut pair);
        pair.b.post_send(wr::invalidate(bound)).expect("invalidate");
        let not_reclaimed = region
            .try_into_buf()
            .expect_err("the invalidation is not retired yet");
        let text = not_reclaimed.to_string();
        assert!(text.contains("memory window"), "{text}");
        let (_, mut of_b) = pair.retire();
        let _window = of_b
            .remove(0)
            .into_window::<Type2>()
            .expect("the free window");
        let mut buf = not_reclaimed
            .into_region()
            .try_into_buf()
            .expect("no peer can reach it");
        assert_eq!(&buf[..4], b"kept");
        buf.fill(7);
    }
}

#[test]
fn an_unposted_binding_grants_no_access() {
    for mut pair in pairs(PROFILES) {
        let region = region(&pair, b"unbound");
        let capacity = pair.b.caps().max_send_wr;
        pair.fake.stall();
        for _ in 0..capacity {
            pair.b.post_send(wr::send(wr::Empty)).expect("a free slot");
        }
        let window = pair.pd.alloc_mw::<Type2>().expect("window");
        let (bound, binding) = window.bind(&region, REMOTE_RW).expect("binding");
        let rejected = pair.b.post_send(wr::bind(binding)).expect_err("full");
        assert_eq!(rejected.error(), PostError::QueueFull { capacity });
        let remote = bound.remote();
        drop(rejected.into_payload().expect("the posted buffer"));
        for _ in 0..capacity {
            pair.a.post_recv(wr::recv(wr::Empty)).expect("receive");
        }
        pair.fake.resume();
        drop(pair.retire());
        // A failed batch does not post its bindings.
        let window = pair.pd.alloc_mw::<Type2>().expect("window");
        let (other, binding) = window.bind(&region, REMOTE_RW).expect("binding");
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
    }
}

#[test]
fn a_binding_in_doubt_keeps_its_window_and_region() {
    for profile in PROFILES {
        for executed in [false, true] {
            let mut pair = Pair::new(profile);
            let region = region(&pair, b"x");
            let window = pair.pd.alloc_mw::<Type2>().expect("window");
            let (bound, binding) = window.bind(&region, REMOTE_RW).expect("binding");
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
                retire_bind(&mut pair);
                assert_eq!((pair.fake.live().mrs, pair.fake.live().mws), (1, 0));
            }
        }
    }
}

#[test]
fn type_1_windows_are_bound_and_unbound_by_verb() {
    for mut pair in pairs(PROFILES) {
        let region = region(&pair, b"type 1");
        let mut window = pair.pd.alloc_mw::<Type1>().expect("window");
        for _ in 0..2 {
            let bound = pair.b.bind_mw(window, &region, REMOTE_RW, 7).expect("bind");
            retire_bind(&mut pair);
            let remote = bound.remote().slice(0..6).expect("in range");
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
        // The driver may have queued a failed bind, so the window is kept until the queue pair is
        // destroyed.
        pair.fake.fail_next(Verb::BindMw, libc::ENOMEM);
        let error = pair
            .b
            .bind_mw(window, &region, REMOTE_RW, 0)
            .expect_err("rejected");
        assert_eq!(
            (error.call(), error.errno().map(|errno| errno.0)),
            ("ibv_bind_mw", Some(libc::ENOMEM))
        );
        assert!(error.to_string().contains(" in state RTS"), "{error}");
        drop(region);
        assert_eq!((pair.fake.live().mrs, pair.fake.live().mws), (2, 1));
    }
}

#[test]
fn only_a_successful_invalidation_returns_the_window() {
    for mut pair in pairs(PROFILES) {
        let region = region(&pair, b"x");
        let bound = bind_window(&mut pair, &region);
        retire_bind(&mut pair);
        pair.b.post_send(wr::invalidate(bound)).expect("invalidate");
        let (_, mut of_b) = pair.retire();
        assert!(
            of_b.remove(0).into_window::<Type1>().is_none(),
            "another type"
        );
        let bound = bind_window(&mut pair, &region);
        retire_bind(&mut pair);
        pair.fake.stall();
        pair.b.post_send(wr::invalidate(bound)).expect("invalidate");
        pair.b.to_error().expect("ERR state");
        let (_, mut of_b) = pair.retire();
        let flushed = of_b.remove(0);
        assert!(!flushed.is_success());
        assert!(flushed.into_window::<Type2>().is_none());
        pair.fake.resume();
    }
}

/// The queue pair keeps a list of its bound windows and removes those that were dropped.
#[test]
fn every_bound_window_is_freed_before_its_queue_pair() {
    for mut pair in pairs(PROFILES) {
        let region = region(&pair, b"x");
        let mut bound = Vec::new();
        for index in 0..20 {
            let window = bind_window(&mut pair, &region);
            retire_bind(&mut pair);
            // Every other one is dropped, and freed then.
            bound.extend((index % 2 == 0).then_some(window));
        }
        assert_eq!(pair.fake.live().mws, 10);
        pair.b.destroy().expect("destroyed");
        assert_eq!(pair.fake.live().mws, 0);
    }
}

#[test]
fn windows_outlive_their_destroyed_queue_pair() {
    for mut pair in pairs(PROFILES) {
        let region = region(&pair, b"x");
        let type_2 = bind_window(&mut pair, &region);
        let window = pair.pd.alloc_mw::<Type1>().expect("window");
        let _type_1 = pair.b.bind_mw(window, &region, REMOTE_RW, 0).expect("bind");
        drop(pair.retire());
        pair.b.destroy().expect("destroyed");
        // Type 2 windows end with their queue pair. Type 1 windows stay valid for other queue pairs
        // of the domain.
        assert_eq!(
            pair.fake.live(),
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
        let mut other = pair
            .pd
            .create_qp::<ibverbs::Rc>(&pair.cq, &pair.cq, fixture::small())
            .expect("queue pair");
        let _rejected = other.post_send(wr::invalidate(type_2));
    }
}

#[test]
fn an_invalid_binding_is_rejected_and_frees_the_window() {
    let mut pair = Pair::new(PROFILES[0]);
    let region = region(&pair, b"x");
    let unbindable = pair.pd.shared(8, AccessFlags::REMOTE_READ).expect("region");
    let other_pd = pair.context.alloc_pd().expect("protection domain");
    let foreign = other_pd.shared(8, AccessFlags::MW_BIND).expect("region");
    let empty = region.slice(8..8).expect("in range");
    let new_window = |pair: &Pair| -> Window<Type2> { pair.pd.alloc_mw().expect("window") };
    for (region, access, kind) in [
        (&unbindable, REMOTE_RW, ErrorKind::InvalidInput),
        (&foreign, REMOTE_RW, ErrorKind::Mismatch),
        (&empty, REMOTE_RW, ErrorKind::InvalidInput),
        (&region, AccessFlags::LOCAL_WRITE, ErrorKind::InvalidInput),
    ] {
        assert_eq!(
            new_window(&pair)
                .bind(region, access)
                .expect_err("rejected")
                .kind(),
            kind
        );
        assert_eq!(pair.fake.live().mws, 0);
    }
    let (bound, binding) = other_pd
        .alloc_mw::<Type2>()
        .expect("window")
        .bind(&foreign, REMOTE_RW)
        .expect("binding");
    let rejected = pair
        .b
        .post_send(wr::bind(binding))
        .expect_err("another domain");
    assert_eq!(rejected.error(), PostError::WrongDomain);
    let window = other_pd.alloc_mw::<Type1>().expect("window");
    let error = pair
        .b
        .bind_mw(window, &foreign, REMOTE_RW, 0)
        .expect_err("another domain");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    drop((
        rejected, bound, region, unbindable, foreign, empty, other_pd,
    ));
}

#[test]
fn windows_move_between_threads() {
    let mut pair = Pair::new(PROFILES[0]);
    let region = region(&pair, b"x");
    let window = bind_window(&mut pair, &region);
    let (_pair, window) = std::thread::spawn(move || {
        retire_bind(&mut pair);
        pair.b
            .post_send(wr::invalidate(window))
            .expect("invalidate");
        let (_, mut of_b) = pair.retire();
        let window = of_b
            .remove(0)
            .into_window::<Type2>()
            .expect("the free window");
        (pair, window)
    })
    .join()
    .expect("no panic");
    drop((window, region));
}

#[test]
fn a_window_that_its_queue_pair_freed_is_not_returned() {
    for mut pair in pairs(IN_ORDER) {
        let region = region(&pair, b"x");
        let bound = bind_window(&mut pair, &region);
        retire_bind(&mut pair);
        pair.b.post_send(wr::invalidate(bound)).expect("invalidate");
        let (_, mut of_b) = pair.retire();
        let invalidated = of_b.remove(0);
        invalidated.check().expect("success");
        drop((pair.a, pair.b));
        assert!(invalidated.into_window::<Type2>().is_none(), "it was freed");
    }
}

#[test]
fn a_message_does_not_return_a_freed_window() {
    let mut pair = Pair::new(IN_ORDER[0]);
    let region = region(&pair, b"x");
    let bound = bind_window(&mut pair, &region);
    retire_bind(&mut pair);
    pair.post_recvs(1);
    let send = wr::send_with_inv(wr::Empty, bound.remote().rkey);
    pair.a.post_send(send).expect("send");
    let received = pair.retire().1.remove(0);
    assert!(received.invalidated_rkey().is_some());
    drop((pair.a, pair.b));
    bound.invalidated_by(&received).expect_err("it was freed");
}
