//! Errors of requests that use windows.

use ibverbs::{
    AccessFlags, Direction, QpOptions, QpState, Rc, Retired, WcStatus,
    mw::{Type1, Type2},
    wr,
};

use super::raw_window::RawWindow;
use super::{REMOTE_ACCESS, pair_and_region};
use crate::lab::{extended_and_classic, pair_with_access, roce, roce_paths};

/// Returns `true` for the status of a locally rejected request. Soft-RoCE flushes it instead of
/// reporting the specified status (docs/drivers.md).
fn is_local_error(status: WcStatus, specified: WcStatus) -> bool {
    // mlx5 reports errors of windows and invalidations as bind errors.
    [specified, WcStatus::WR_FLUSH_ERR, WcStatus::MW_BIND_ERR].contains(&status)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rejected_binding_is_a_bind_error() {
    let (local, bind) = (
        rdma_sys::IBV_ACCESS_LOCAL_WRITE,
        rdma_sys::IBV_ACCESS_MW_BIND,
    );
    for context in roce() {
        for (cause, rights, offset, len) in [
            ("a region without MW_BIND", local, 0, 64),
            ("write access to a read-only region", bind, 0, 64),
            ("out of bounds", local | bind, 1, 64),
            ("an empty range", local | bind, 0, 0),
        ] {
            let mut pair = pair_with_access::<Rc>(
                &context,
                QpOptions::default(),
                REMOTE_ACCESS | AccessFlags::MW_BIND,
            );
            let window = RawWindow::new(&pair.pd, 64, rights);
            window.bind(&mut pair.b, offset, len, rdma_sys::IBV_ACCESS_REMOTE_WRITE);
            let status = pair.retire_foreign();
            assert!(
                is_local_error(status, WcStatus::MW_BIND_ERR),
                "{cause}: {status}"
            );
            assert_eq!(pair.b.state().expect("query"), QpState::ERR, "{cause}");
            pair.b
                .post_send(wr::send(pair.pd.buf(8).expect("buffer")))
                .expect("post");
            let after = pair.retire(1).remove(0);
            assert_eq!(after.status(), WcStatus::WR_FLUSH_ERR, "{cause}");
            assert!(after.into_buf().is_some());
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn send_with_invalid_rkey_fails_at_the_receiver() {
    for context in roce() {
        let keys = ["an old key", "no key", "a window of type 1", "a region"];
        for (key, options) in keys
            .into_iter()
            .zip(extended_and_classic().into_iter().cycle())
        {
            let (mut pair, region) = pair_and_region(&context, options);
            let window = pair.pd.alloc_mw::<Type2>().expect("window");
            let (bound, binding) = window.bind(&region, REMOTE_ACCESS).expect("binding");
            pair.b.post_send(wr::bind(binding)).expect("bind");
            let other = pair.pd.alloc_mw::<Type1>().expect("window");
            let other = pair
                .b
                .bind_mw(other, &region, REMOTE_ACCESS, 0)
                .expect("bind");
            assert!(pair.retire(2).iter().all(Retired::is_success));
            let open = pair.pd.shared(64, REMOTE_ACCESS).expect("region");
            let rkey = match key {
                "an old key" => bound.remote().rkey ^ 1,
                "an unknown key" => bound.remote().rkey ^ 0x7f_0000,
                "a window of type 1" => other.remote().rkey,
                _ => open.remote().rkey,
            };
            pair.b
                .post_recv(wr::recv(pair.pd.buf(16).expect("buffer")).tag(3))
                .expect("receive");
            pair.b
                .post_recv(wr::recv(pair.pd.buf(16).expect("buffer")).tag(4))
                .expect("receive");
            pair.a
                .post_send(wr::send_with_inv(wr::Inline(b"done"), rkey))
                .expect("send");
            let (received, sent): (Vec<_>, Vec<_>) = pair
                .retire(3)
                .into_iter()
                .partition(|one| one.direction() == Direction::Recv);
            let statuses: Vec<_> = received
                .iter()
                .map(|one| (one.tag(), one.status()))
                .collect();
            assert_eq!(
                statuses,
                [(3, WcStatus::REM_INV_REQ_ERR), (4, WcStatus::WR_FLUSH_ERR)],
                "{key}"
            );
            let error = received[0].check().expect_err("failed").to_string();
            assert!(error.contains("invalidate"), "{error}");
            // Soft-RoCE does not report the error to the sender.
            assert!(
                [WcStatus::SUCCESS, WcStatus::REM_INV_REQ_ERR].contains(&sent[0].status()),
                "{key}"
            );
            assert_eq!(pair.b.state().expect("query"), QpState::ERR, "{key}");
            for one in received {
                assert_eq!(one.invalidated_rkey(), None);
                assert!(
                    one.into_buf().is_some(),
                    "a failed receive must return its buffer"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn invalidating_unbound_window_fails_and_frees_it() {
    for (context, options) in roce_paths() {
        let (mut pair, region) = pair_and_region(&context, options);
        let window = pair.pd.alloc_mw::<Type2>().expect("window");
        let (bound, binding) = window.bind(&region, REMOTE_ACCESS).expect("binding");
        drop(binding);
        pair.b.post_send(wr::invalidate(bound)).expect("post");
        let failed = pair.retire(1).remove(0);
        assert!(
            is_local_error(failed.status(), WcStatus::LOC_QP_OP_ERR),
            "{failed:?}"
        );
        assert!(failed.into_window::<Type2>().is_none());
        assert_eq!(pair.b.state().expect("query"), QpState::ERR);
        drop(pair);
        region.try_into_buf().expect("nothing holds it");
    }
}
