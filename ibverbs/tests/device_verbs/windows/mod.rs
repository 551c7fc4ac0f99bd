//! Memory windows: access through them, invalidation, and the objects that they keep alive.

mod errors;
mod raw_window;

use ibverbs::{
    AccessFlags, Context, Direction, ErrorKind, QpOptions, QueuePair, Rc, RemoteMemory,
    SharedRegion, WcOpcode, WcStatus,
    mw::{Type1, Type2, WindowType},
    wr,
};

use crate::lab::{Pair, devices, is_efa, is_iwarp, pair_with_access, roce, roce_paths};

const REMOTE_ACCESS: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);

/// Creates two connected queue pairs and a region without remote access of its own. `b` owns the
/// memory, `a` is the peer.
fn pair_and_region(context: &Context, options: QpOptions) -> (Pair<Rc>, SharedRegion) {
    let pair = pair_with_access::<Rc>(context, options, REMOTE_ACCESS | AccessFlags::MW_BIND);
    let region = pair.pd.shared(8192, AccessFlags::MW_BIND).expect("region");
    (pair, region)
}

/// Reads as the peer and returns the status.
fn read(pair: &mut Pair<Rc>, remote: RemoteMemory) -> WcStatus {
    let buf = pair.pd.buf(8192).expect("buffer");
    pair.a.post_send(wr::read(buf, remote)).expect("read");
    pair.retire(1)[0].status()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn window_grants_access_until_invalidated() {
    for (context, options) in roce_paths() {
        let (mut pair, region) = pair_and_region(&context, options);
        region
            .write(4096, b"seen through a window")
            .expect("in range");
        let mut window = pair.pd.alloc_mw::<Type2>().expect("window");
        let mut keys = Vec::new();
        for _ in 0..3 {
            let part = region.slice(4096..4160).expect("in range");
            let (bound, binding) = window
                .bind(&part, AccessFlags::REMOTE_READ)
                .expect("binding");
            let remote = bound.remote();
            assert_eq!(remote.len, 64);
            keys.push(remote.rkey);
            pair.b.post_send(wr::bind(binding).tag(1)).expect("bind");
            let done = pair.retire(1).remove(0);
            done.check().expect("bound");
            assert_eq!((done.opcode(), done.tag()), (WcOpcode::BIND_MW, 1));
            assert!(done.into_window::<Type2>().is_none());
            assert_eq!(read(&mut pair, remote), WcStatus::SUCCESS);
            pair.b.post_send(wr::invalidate(bound)).expect("invalidate");
            let done = pair.retire(1).remove(0);
            done.check().expect("invalidated");
            window = done.into_window().expect("unbound");
        }
        keys.dedup();
        assert_eq!(keys.len(), 3, "each binding must have a new key");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rkey_is_invalid_after_invalidation() {
    for (context, options) in roce_paths() {
        let (mut pair, region) = pair_and_region(&context, options);
        let window = pair.pd.alloc_mw::<Type2>().expect("window");
        let (bound, binding) = window
            .bind(&region, AccessFlags::REMOTE_READ)
            .expect("binding");
        let remote = bound.remote();
        pair.b
            .batch(|batch| -> ibverbs::Result<()> {
                batch.send(wr::bind(binding).signaled(false))?;
                batch.send(wr::invalidate(bound).fenced(true))?;
                Ok(())
            })
            .expect("bind and invalidate");
        let done = pair.retire(1).remove(0);
        done.check().expect("invalidated");
        assert!(done.into_window::<Type2>().is_some());
        assert_eq!(read(&mut pair, remote), WcStatus::REM_ACCESS_ERR);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn window_limits_rights_and_range() {
    for context in roce() {
        for writes in [false, true] {
            let (mut pair, region) = pair_and_region(&context, QpOptions::default());
            let window = pair.pd.alloc_mw::<Type2>().expect("window");
            let half = region.slice(4096..8192).expect("in range");
            let (bound, binding) = window
                .bind(&half, AccessFlags::REMOTE_READ)
                .expect("binding");
            pair.b.post_send(wr::bind(binding)).expect("bind");
            pair.retire(1)[0].check().expect("bound");
            let remote = bound.remote();
            if writes {
                let buf = pair.pd.buf(8).expect("buffer");
                pair.a.post_send(wr::write(buf, remote)).expect("post");
                assert_eq!(pair.retire(1)[0].status(), WcStatus::REM_ACCESS_ERR);
            } else {
                // rxe checks the bounds of the region instead of those of the window
                // (docs/drivers.md).
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
fn peer_invalidates_with_send() {
    for (context, options) in roce_paths() {
        let (mut pair, region) = pair_and_region(&context, options);
        let other = pair.pd.shared(64, AccessFlags::MW_BIND).expect("region");
        let window = pair.pd.alloc_mw::<Type2>().expect("window");
        let (bound, binding) = window.bind(&region, REMOTE_ACCESS).expect("binding");
        pair.b.post_send(wr::bind(binding)).expect("bind");
        pair.retire(1)[0].check().expect("bound");
        for _ in 0..2 {
            pair.b
                .post_recv(wr::recv(pair.pd.buf(16).expect("buffer")))
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
                .expect_err("the message invalidates nothing")
        });
        pair.a
            .post_send(wr::send_with_inv(wr::Inline(b"done"), bound.remote().rkey))
            .expect("send");
        let received = pair.retire_received(2);
        let window = bound.invalidated_by(&received).expect("invalidated");
        // After invalidation by the peer, the window can be bound to the same region only.
        let (bound, binding) = window.bind(&region, REMOTE_ACCESS).expect("binding");
        pair.b.post_send(wr::bind(binding)).expect("bind");
        pair.retire(1)[0].check().expect("bound");
        assert_eq!(read(&mut pair, bound.remote()), WcStatus::SUCCESS);
        pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
        pair.a
            .post_send(wr::send_with_inv(wr::Empty, bound.remote().rkey))
            .expect("send");
        let received = pair.retire_received(2);
        let window = bound.invalidated_by(&received).expect("invalidated");
        let error = window
            .bind(&other, REMOTE_ACCESS)
            .expect_err("another region");
        assert_eq!(error.kind(), ErrorKind::Mismatch);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn window_invalidated_before_its_binding_retires_is_kept() {
    for (context, options) in roce_paths() {
        let (mut pair, region) = pair_and_region(&context, options);
        let window = pair.pd.alloc_mw::<Type2>().expect("window");
        let (bound, binding) = window.bind(&region, REMOTE_ACCESS).expect("binding");
        let remote = bound.remote();
        pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
        let unsignaled = wr::bind(binding).signaled(false);
        pair.b.post_send(unsignaled).expect("bind");
        let message = wr::send_with_inv(wr::Empty, remote.rkey);
        pair.a.post_send(message).expect("send");
        let done = pair.retire(2);
        let received = done.iter().find(|one| one.direction() == Direction::Recv);
        let received = received.expect("received");
        received.check().expect("invalidated");
        let bound = bound.invalidated_by(received);
        let bound = bound.expect_err("the binding has not retired");
        // The completion of a later request retires the binding.
        pair.a.post_recv(wr::recv(wr::Empty)).expect("receive");
        pair.b.post_send(wr::send(wr::Empty)).expect("send");
        drop(pair.retire(2));
        let window = bound.invalidated_by(received).expect("invalidated");
        assert_eq!(read(&mut pair, remote), WcStatus::REM_ACCESS_ERR);
        drop(window);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn type_1_windows_bind_and_unbind() {
    for (context, options) in roce_paths() {
        let (mut pair, region) = pair_and_region(&context, options);
        let mut window = pair.pd.alloc_mw::<Type1>().expect("window");
        for round in 0..3 {
            let bound = pair
                .b
                .bind_mw(window, &region, REMOTE_ACCESS, 7)
                .expect("bind");
            let done = pair.retire(1).remove(0);
            done.check().expect("bound");
            assert_eq!(done.tag(), 7);
            assert_eq!(
                read(&mut pair, bound.remote()),
                WcStatus::SUCCESS,
                "round {round}"
            );
            pair.b.unbind_mw(bound, 8).expect("unbind");
            let done = pair.retire(1).remove(0);
            done.check().expect("unbound");
            window = done.into_window().expect("unbound");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn bound_window_keeps_its_region_alive() {
    for context in roce() {
        for order in 0..5 {
            let (mut pair, region) = pair_and_region(&context, QpOptions::default());
            let window = pair.pd.alloc_mw::<Type2>().expect("window");
            let (bound, binding) = window.bind(&region, REMOTE_ACCESS).expect("binding");
            pair.b.post_send(wr::bind(binding)).expect("bind");
            let remote = bound.remote();
            match order {
                0 => {
                    pair.retire(1)[0].check().expect("bound");
                    drop(region);
                    assert_eq!(
                        read(&mut pair, remote),
                        WcStatus::SUCCESS,
                        "the window keeps the region alive"
                    );
                }
                1 => {
                    pair.retire(1)[0].check().expect("bound");
                    drop(bound);
                    assert_eq!(
                        read(&mut pair, remote),
                        WcStatus::REM_ACCESS_ERR,
                        "deallocating a window ends its binding"
                    );
                }
                2 => drop((bound, region)), // the request may be in flight
                3 => {
                    pair.retire(1)[0].check().expect("bound");
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

fn alloc_result<K: WindowType>(context: &Context) -> Result<(), ErrorKind> {
    context
        .alloc_pd()
        .expect("protection domain")
        .alloc_mw::<K>()
        .map(drop)
        .map_err(|error| error.kind())
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn windows_work_or_are_unsupported() {
    for context in devices() {
        println!("device: {}", context.device_name());
        let expected = if is_iwarp(&context) || is_efa(&context) {
            Err(ErrorKind::Unsupported)
        } else {
            Ok(())
        };
        assert_eq!(
            (
                alloc_result::<Type1>(&context),
                alloc_result::<Type2>(&context)
            ),
            (expected, expected)
        );
    }
}

#[allow(dead_code, reason = "the test is that it compiles")]
fn windows_and_their_bindings_are_send(qp: QueuePair<Rc>) -> impl Send {
    (qp.pd().alloc_mw::<Type2>(), qp)
}
