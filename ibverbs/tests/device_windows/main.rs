//! Memory windows: what a peer can reach through them, until when, and what they keep alive.

mod by_hand;
mod errors;
#[path = "../lab/mod.rs"]
mod lab;

use ibverbs::{
    AccessFlags, Context, Direction, ErrorKind, QpOptions, QueuePair, Rc, RemoteMemory,
    SharedRegion, WcOpcode, WcStatus,
    mw::{Type1, Type2, WindowType},
    wr,
};
use lab::{LeakCheck, Pair, both_forms, devices, is_iwarp, pair_of, roce};

const OPEN: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);

/// Two connected queue pairs and a region that only windows open. `b` owns the memory, `a` is the
/// peer.
fn prepared(context: &Context, options: QpOptions) -> (Pair<Rc>, SharedRegion) {
    let pair = pair_of::<Rc>(context, options, OPEN | AccessFlags::MW_BIND);
    let region = pair.pd.shared(8192, AccessFlags::MW_BIND).expect("region");
    (pair, region)
}

/// How a read by the peer ends.
fn read(pair: &mut Pair<Rc>, remote: RemoteMemory) -> WcStatus {
    let buf = pair.pd.buf(8192).expect("buf");
    pair.a.post_send(wr::read(buf, remote)).expect("read");
    pair.retire(1)[0].status()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_window_opens_its_part_of_the_region_until_it_is_invalidated() {
    let _leak_check = LeakCheck::new();
    for context in roce() {
        for options in both_forms() {
            let (mut pair, region) = prepared(&context, options);
            region
                .write(4096, b"seen through a window")
                .expect("within");
            let mut window = pair.pd.alloc_mw::<Type2>().expect("window");
            let mut keys = Vec::new();
            for _ in 0..3 {
                let part = region.slice(4096..4160).expect("within");
                let (bound, binding) = window.bind(&part, AccessFlags::REMOTE_READ).expect("fits");
                let remote = bound.remote();
                assert_eq!(remote.len, 64);
                keys.push(remote.rkey);
                pair.b.post_send(wr::bind(binding).tag(1)).expect("bind");
                let done = pair.retire(1).remove(0);
                done.ok().expect("bound");
                assert_eq!((done.opcode(), done.tag()), (WcOpcode::BIND_MW, 1));
                assert!(done.into_window::<Type2>().is_none());
                assert_eq!(read(&mut pair, remote), WcStatus::SUCCESS);
                pair.b.post_send(wr::invalidate(bound)).expect("invalidate");
                let done = pair.retire(1).remove(0);
                done.ok().expect("invalidated");
                window = done.into_window().expect("free again");
            }
            keys.dedup();
            assert_eq!(keys.len(), 3, "each binding has a key of its own");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_key_is_dead_after_it_was_invalidated() {
    let _leak_check = LeakCheck::new();
    for context in roce() {
        for options in both_forms() {
            let (mut pair, region) = prepared(&context, options);
            let window = pair.pd.alloc_mw::<Type2>().expect("window");
            let (bound, binding) = window
                .bind(&region, AccessFlags::REMOTE_READ)
                .expect("fits");
            let remote = bound.remote();
            pair.b
                .batch(|batch| -> ibverbs::Result<()> {
                    batch.send(wr::bind(binding).unsignaled())?;
                    batch.send(wr::invalidate(bound).fenced())?;
                    Ok(())
                })
                .expect("both");
            let done = pair.retire(1).remove(0);
            done.ok().expect("invalidated");
            assert!(done.into_window::<Type2>().is_some());
            assert_eq!(read(&mut pair, remote), WcStatus::REM_ACCESS_ERR);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_window_gives_no_more_than_it_was_bound_for() {
    let _leak_check = LeakCheck::new();
    for context in roce() {
        for writes in [false, true] {
            let (mut pair, region) = prepared(&context, QpOptions::default());
            let window = pair.pd.alloc_mw::<Type2>().expect("window");
            let half = region.slice(4096..8192).expect("within");
            let (bound, binding) = window.bind(&half, AccessFlags::REMOTE_READ).expect("fits");
            pair.b.post_send(wr::bind(binding)).expect("bind");
            pair.retire(1)[0].ok().expect("bound");
            let remote = bound.remote();
            if writes {
                let buf = pair.pd.buf(8).expect("buf");
                pair.a.post_send(wr::write(buf, remote)).expect("post");
                assert_eq!(pair.retire(1)[0].status(), WcStatus::REM_ACCESS_ERR);
            } else {
                // rxe checks the bounds of the region, not those of the window: see ci/DRIVERS.md.
                let claimed = RemoteMemory {
                    len: 4097,
                    ..remote
                };
                assert_eq!(read(&mut pair, claimed), WcStatus::REM_ACCESS_ERR);
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_peer_invalidates_by_a_message() {
    let _leak_check = LeakCheck::new();
    for context in roce() {
        for options in both_forms() {
            let (mut pair, region) = prepared(&context, options);
            let other = pair.pd.shared(64, AccessFlags::MW_BIND).expect("region");
            let window = pair.pd.alloc_mw::<Type2>().expect("window");
            let (bound, binding) = window.bind(&region, OPEN).expect("fits");
            pair.b.post_send(wr::bind(binding)).expect("bind");
            pair.retire(1)[0].ok().expect("bound");
            for _ in 0..2 {
                pair.b
                    .post_recv(wr::recv(pair.pd.buf(16).expect("buf")))
                    .expect("receive");
            }
            pair.a
                .post_send(wr::send(wr::Inline(b"not yet")))
                .expect("send");
            let plain = pair.retire(2);
            let bound = plain.iter().fold(bound, |bound, retired| {
                assert_eq!(retired.invalidated_rkey(), None);
                bound
                    .invalidated_by(retired)
                    .expect_err("a message as any other")
            });
            pair.a
                .post_send(wr::send_with_inv(wr::Inline(b"done"), bound.remote().rkey))
                .expect("send");
            let received = pair
                .retire(2)
                .into_iter()
                .find(|one| one.direction() == Direction::Recv)
                .expect("received");
            let window = bound.invalidated_by(&received).expect("invalidated");
            // To the same region again; to another only when this side says that the window is
            // free.
            let (bound, binding) = window.bind(&region, OPEN).expect("fits");
            pair.b.post_send(wr::bind(binding)).expect("bind");
            pair.retire(1)[0].ok().expect("bound");
            assert_eq!(read(&mut pair, bound.remote()), WcStatus::SUCCESS);
            pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
            pair.a
                .post_send(wr::send_with_inv(wr::Empty, bound.remote().rkey))
                .expect("send");
            let received = pair
                .retire(2)
                .into_iter()
                .find(|one| one.direction() == Direction::Recv)
                .expect("received");
            let window = bound.invalidated_by(&received).expect("invalidated");
            let error = window.bind(&other, OPEN).expect_err("another region");
            assert_eq!(error.kind(), ErrorKind::Mismatch);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn windows_of_type_1_are_bound_and_unbound_by_their_verb() {
    let _leak_check = LeakCheck::new();
    for context in roce() {
        for options in both_forms() {
            let (mut pair, region) = prepared(&context, options);
            let mut window = pair.pd.alloc_mw::<Type1>().expect("window");
            for round in 0..3 {
                let bound = pair.b.bind_mw(window, &region, OPEN, 7).expect("bind");
                let done = pair.retire(1).remove(0);
                done.ok().expect("bound");
                assert_eq!(done.tag(), 7);
                assert_eq!(
                    read(&mut pair, bound.remote()),
                    WcStatus::SUCCESS,
                    "round {round}"
                );
                pair.b.unbind_mw(bound, 8).expect("unbind");
                let done = pair.retire(1).remove(0);
                done.ok().expect("unbound");
                window = done.into_window().expect("free again");
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_bound_window_keeps_its_region_whatever_is_dropped_or_forgotten_first() {
    let _leak_check = LeakCheck::new();
    for context in roce() {
        for order in 0..5 {
            let (mut pair, region) = prepared(&context, QpOptions::default());
            let window = pair.pd.alloc_mw::<Type2>().expect("window");
            let (bound, binding) = window.bind(&region, OPEN).expect("fits");
            pair.b.post_send(wr::bind(binding)).expect("bind");
            let remote = bound.remote();
            match order {
                0 => {
                    pair.retire(1)[0].ok().expect("bound");
                    drop(region);
                    assert_eq!(
                        read(&mut pair, remote),
                        WcStatus::SUCCESS,
                        "the window keeps it"
                    );
                }
                1 => {
                    pair.retire(1)[0].ok().expect("bound");
                    drop(bound);
                    assert_eq!(
                        read(&mut pair, remote),
                        WcStatus::REM_ACCESS_ERR,
                        "freeing a window ends its binding"
                    );
                }
                2 => drop((bound, region)), // while the request may be in flight
                3 => {
                    pair.retire(1)[0].ok().expect("bound");
                    drop(pair);
                    drop((region, bound));
                }
                _ => {
                    let Pair { pd, cq, a, b } = pair;
                    drop((a, b, pd, cq));
                    drop((bound, region));
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn what_a_window_cannot_be_bound_to_is_refused_before_the_device_hears_of_it() {
    let _leak_check = LeakCheck::new();
    for context in roce() {
        let (mut pair, region) = prepared(&context, QpOptions::default());
        let closed = pair
            .pd
            .shared(64, AccessFlags::REMOTE_READ)
            .expect("region");
        let foreign = context
            .alloc_pd()
            .expect("domain")
            .shared(64, AccessFlags::MW_BIND)
            .expect("region");
        let nothing = region.slice(8..8).expect("within");
        let fresh = || pair.pd.alloc_mw::<Type2>().expect("window");
        for (region, access, kind) in [
            (&closed, OPEN, ErrorKind::InvalidInput),
            (&foreign, OPEN, ErrorKind::Mismatch),
            (&nothing, OPEN, ErrorKind::InvalidInput),
            (&region, AccessFlags::LOCAL_WRITE, ErrorKind::InvalidInput),
        ] {
            assert_eq!(
                fresh().bind(region, access).expect_err("refused").kind(),
                kind
            );
        }
        let elsewhere = context.alloc_pd().expect("domain");
        let window = elsewhere.alloc_mw::<Type1>().expect("window");
        let error = pair
            .b
            .bind_mw(window, &foreign, OPEN, 0)
            .expect_err("another domain");
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        assert_eq!(pair.b.send_slots_free(), pair.b.caps().max_send_wr as usize);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_region_reached_by_windows_only_comes_back_when_they_are_invalidated() {
    let _leak_check = LeakCheck::new();
    for context in roce() {
        let (mut pair, region) = prepared(&context, QpOptions::default());
        region.write(0, b"kept").expect("within");
        let window = pair.pd.alloc_mw::<Type2>().expect("window");
        let (bound, binding) = window.bind(&region, OPEN).expect("fits");
        pair.b.post_send(wr::bind(binding)).expect("bind");
        pair.retire(1)[0].ok().expect("bound");
        let still = region.try_into_buf().expect_err("a window is bound to it");
        assert!(still.to_string().contains("memory window"), "{still}");
        pair.b.post_send(wr::invalidate(bound)).expect("invalidate");
        let window = pair
            .retire(1)
            .remove(0)
            .into_window::<Type2>()
            .expect("free");
        let buf = still
            .into_region()
            .try_into_buf()
            .expect("no peer reaches it, queue pairs or not");
        assert_eq!(&buf[..4], b"kept");
        drop(window);
    }
}

fn is_there<K: WindowType>(context: &Context) -> Result<(), ErrorKind> {
    context
        .alloc_pd()
        .expect("domain")
        .alloc_mw::<K>()
        .map(drop)
        .map_err(|error| error.kind())
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_device_without_windows_says_so() {
    let _leak_check = LeakCheck::new();
    for context in devices() {
        println!("device: {}", context.device_name());
        let iwarp = is_iwarp(&context);
        let expected = if iwarp {
            Err(ErrorKind::Unsupported)
        } else {
            Ok(())
        };
        assert_eq!(
            (is_there::<Type1>(&context), is_there::<Type2>(&context)),
            (expected, expected)
        );
    }
}

#[allow(dead_code, reason = "that it compiles is the test")]
fn windows_and_their_bindings_are_send(qp: QueuePair<Rc>) -> impl Send {
    (qp.pd().alloc_mw::<Type2>(), qp)
}
