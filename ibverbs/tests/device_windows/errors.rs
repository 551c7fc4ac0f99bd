//! The errors that requests about windows end in.

use ibverbs::{
    AccessFlags, Direction, QpOptions, QpState, Rc, Retired, WcStatus,
    mw::{Type1, Type2},
    wr,
};

use crate::by_hand::ByHand;
use crate::lab::{LeakCheck, both_forms, pair_of, roce};
use crate::{OPEN, prepared};

/// What a device says of a request that it refuses by itself. Soft-RoCE flushes it: see
/// ci/DRIVERS.md.
fn refused(status: WcStatus, specified: WcStatus) -> bool {
    [specified, WcStatus::WR_FLUSH_ERR].contains(&status)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_binding_that_the_device_refuses_is_a_bind_error_and_ends_the_queue_pair() {
    let _leak_check = LeakCheck::new();
    let (local, bind) = (
        rdma_sys::IBV_ACCESS_LOCAL_WRITE,
        rdma_sys::IBV_ACCESS_MW_BIND,
    );
    for context in roce() {
        for (what, rights, offset, len) in [
            ("a region not open to windows", local, 0, 64),
            ("writes to a region that takes none", bind, 0, 64),
            ("beyond its end", local | bind, 1, 64),
            ("nothing", local | bind, 0, 0),
        ] {
            let mut pair =
                pair_of::<Rc>(&context, QpOptions::default(), OPEN | AccessFlags::MW_BIND);
            let window = ByHand::new(&pair.pd, 64, rights);
            window.bind(&mut pair.b, offset, len, rdma_sys::IBV_ACCESS_REMOTE_WRITE);
            let status = pair.retire_foreign();
            assert!(refused(status, WcStatus::MW_BIND_ERR), "{what}: {status}");
            assert_eq!(pair.b.state().expect("query"), QpState::ERR, "{what}");
            pair.b
                .post_send(wr::send(pair.pd.buf(8).expect("buf")))
                .expect("post");
            let after = pair.retire(1).remove(0);
            assert_eq!(after.status(), WcStatus::WR_FLUSH_ERR, "{what}");
            assert!(after.into_buf().is_some());
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_message_that_invalidates_what_it_may_not_is_an_error_at_the_receiver() {
    let _leak_check = LeakCheck::new();
    for context in roce() {
        let keys = ["an old key", "no key", "a window of type 1", "a region"];
        for (what, options) in keys.into_iter().zip(both_forms().into_iter().cycle()) {
            let (mut pair, region) = prepared(&context, options);
            let window = pair.pd.alloc_mw::<Type2>().expect("window");
            let (bound, binding) = window.bind(&region, OPEN).expect("fits");
            pair.b.post_send(wr::bind(binding)).expect("bind");
            let other = pair.pd.alloc_mw::<Type1>().expect("window");
            let other = pair.b.bind_mw(other, &region, OPEN, 0).expect("bind");
            assert!(pair.retire(2).iter().all(Retired::is_success));
            let open = pair.pd.shared(64, OPEN).expect("region");
            let rkey = match what {
                "an old key" => bound.remote().rkey ^ 1,
                "no key" => bound.remote().rkey ^ 0x7f_0000,
                "a window of type 1" => other.remote().rkey,
                _ => open.remote().rkey,
            };
            pair.b
                .post_recv(wr::recv(pair.pd.buf(16).expect("buf")).tag(3))
                .expect("receive");
            pair.b
                .post_recv(wr::recv(pair.pd.buf(16).expect("buf")).tag(4))
                .expect("receive");
            pair.a
                .post_send(wr::send_with_inv(wr::Inline(b"done"), rkey))
                .expect("send");
            let (received, sent): (Vec<_>, Vec<_>) = pair
                .retire(3)
                .into_iter()
                .partition(|one| one.direction() == Direction::Recv);
            let ends: Vec<_> = received
                .iter()
                .map(|one| (one.tag(), one.status()))
                .collect();
            assert_eq!(
                ends,
                [(3, WcStatus::REM_INV_REQ_ERR), (4, WcStatus::WR_FLUSH_ERR)],
                "{what}"
            );
            let error = received[0].ok().expect_err("failed").to_string();
            assert!(error.contains("invalidate"), "{error}");
            // Soft-RoCE does not tell the sender.
            assert!(
                [WcStatus::SUCCESS, WcStatus::REM_INV_REQ_ERR].contains(&sent[0].status()),
                "{what}"
            );
            assert_eq!(pair.b.state().expect("query"), QpState::ERR, "{what}");
            for one in received {
                assert_eq!(one.invalidated_rkey(), None);
                assert!(
                    one.into_buf().is_some(),
                    "a failed receive gives its buffer back"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn invalidating_what_was_never_bound_fails_and_frees_the_window() {
    let _leak_check = LeakCheck::new();
    for context in roce() {
        for options in both_forms() {
            let (mut pair, region) = prepared(&context, options);
            let window = pair.pd.alloc_mw::<Type2>().expect("window");
            let (bound, binding) = window.bind(&region, OPEN).expect("fits");
            drop(binding);
            pair.b.post_send(wr::invalidate(bound)).expect("post");
            let failed = pair.retire(1).remove(0);
            assert!(
                refused(failed.status(), WcStatus::LOC_QP_OP_ERR),
                "{failed:?}"
            );
            assert!(failed.into_window::<Type2>().is_none());
            assert_eq!(pair.b.state().expect("query"), QpState::ERR);
            drop(pair);
            region.try_into_buf().expect("nothing holds it");
        }
    }
}
