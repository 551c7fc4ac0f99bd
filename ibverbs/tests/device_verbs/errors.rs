//! Failures of each verb: the status of the completion, the return of the buffer, and the error
//! state of the queue pair.
//!
//! iWARP needs rdma_cm to connect, so `rdmacm` has the same tests for it.

use std::time::Duration;

use ibverbs::{
    AccessFlags, Buf, Context, CqOptions, Direction, Errno, QpOptions, QpState, QueuePair, Rc,
    RemoteMemory, Retired, WcStatus, qp::QpChange, wr,
};
use test_support::process::wait_until;

use crate::lab::{
    Pair, REMOTE_ACCESS, devices_with, pair_with_access, path, roce, roce_paths, verb,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verb {
    Send,
    SendWithImm,
    Write,
    WriteWithImm,
    Read,
    CompareSwap,
    FetchAdd,
}

use Verb::{CompareSwap, FetchAdd, Read, Send, SendWithImm, Write, WriteWithImm};

const ALL: [Verb; 7] = [
    Send,
    SendWithImm,
    Write,
    WriteWithImm,
    Read,
    CompareSwap,
    FetchAdd,
];
const REMOTE: [Verb; 5] = [Write, WriteWithImm, Read, CompareSwap, FetchAdd];
const RECEIVED: [Verb; 3] = [Send, SendWithImm, WriteWithImm];

impl Verb {
    /// Posts a request of 8 bytes. Returns `true` if the queue pair accepted the buffer.
    fn post(self, qp: &mut QueuePair<Rc>, buf: Buf, remote: RemoteMemory) -> bool {
        let remote = RemoteMemory { len: 8, ..remote };
        let posted = match self {
            Send => qp.post_send(wr::send(buf)),
            SendWithImm => qp.post_send(wr::send_with_imm(buf, 1)),
            Write => qp.post_send(wr::write(buf, remote)),
            WriteWithImm => qp.post_send(wr::write_with_imm(buf, remote, 1)),
            Read => qp.post_send(wr::read(buf, remote)),
            CompareSwap => qp.post_send(wr::compare_swap(buf, remote, 0, 1)),
            FetchAdd => qp.post_send(wr::fetch_add(buf, remote, 1)),
        };
        posted.is_ok()
    }

    /// Returns the access right that the request needs at the peer.
    fn needs(self) -> AccessFlags {
        match self {
            Send | SendWithImm => AccessFlags::empty(),
            Write | WriteWithImm => AccessFlags::REMOTE_WRITE,
            Read => AccessFlags::REMOTE_READ,
            CompareSwap | FetchAdd => AccessFlags::REMOTE_ATOMIC,
        }
    }
}

/// Posts a request on `a` and returns its completion. Skips flushed receives of a peer that is in
/// the error state.
fn post_and_retire(pair: &mut Pair, verb: Verb, remote: RemoteMemory) -> Retired {
    let buf = pair.pd.buf(8).expect("buffer");
    assert!(verb.post(&mut pair.a, buf, remote), "{verb:?}");
    loop {
        let one = pair
            .retire(1)
            .into_iter()
            .find(|one| one.direction() == Direction::Send);
        if let Some(one) = one {
            return one;
        }
    }
}

/// Checks that the buffer was returned, the status is as expected and the queue pair is in the
/// error state.
fn check_failure(pair: &mut Pair, verb: Verb, failed: Retired, status: WcStatus) {
    assert_eq!(failed.status(), status, "{verb:?}");
    assert_ne!(status, WcStatus::SUCCESS, "{verb:?}");
    let error = failed.check().expect_err("failed");
    assert!(
        error.to_string().contains(status.name().expect("known")),
        "{error}"
    );
    assert_eq!(
        failed
            .into_buf()
            .expect("a failed request returns its buffer")
            .capacity(),
        8,
        "{verb:?}"
    );
    // Soft-RoCE adds the completion before it changes the state (`rxe_completer`).
    let is_in_error = || pair.a.state().expect("query") == QpState::ERR;
    assert!(wait_until(Duration::from_secs(10), is_in_error), "{verb:?}");
    assert!(pair.a.is_idle(), "{verb:?}");
}

fn open_pair(context: &Context, options: QpOptions) -> Pair {
    pair_with_access::<Rc>(context, options, REMOTE_ACCESS)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn forbidden_remote_access_fails_with_rem_access_err() {
    for (context, options) in roce_paths() {
        for verb in REMOTE {
            for cause in [
                "a wrong key",
                "beyond its end",
                "a right that the region lacks",
                "a right that the queue pair lacks",
            ] {
                let insufficient = REMOTE_ACCESS - verb.needs();
                let mut pair = if cause == "a right that the queue pair lacks" {
                    pair_with_access::<Rc>(&context, options, insufficient)
                } else {
                    open_pair(&context, options)
                };
                let rights = if cause == "a right that the region lacks" {
                    insufficient
                } else {
                    REMOTE_ACCESS
                };
                let region = pair.pd.shared(64, rights).expect("region");
                let mut remote = region.remote();
                match cause {
                    "a wrong key" => remote.rkey ^= 0x5500,
                    "beyond its end" => remote.addr += 64,
                    _ => {}
                }
                pair.b
                    .post_recv(wr::recv(wr::Empty))
                    .expect("for the immediate data");
                let failed = post_and_retire(&mut pair, verb, remote);
                // If the queue pair lacks the right, the specification also allows the peer to
                // report an invalid request.
                let status = match failed.status() {
                    WcStatus::REM_INV_REQ_ERR if cause == "a right that the queue pair lacks" => {
                        failed.status()
                    }
                    _ => WcStatus::REM_ACCESS_ERR,
                };
                check_failure(&mut pair, verb, failed, status);
                let mut seen = [7; 64];
                region.read(0, &mut seen).expect("in range");
                assert_eq!(
                    seen, [0; 64],
                    "{verb:?} with {cause} must not change memory"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn destroyed_peer_exceeds_retries() {
    for context in roce() {
        for verb in ALL {
            let mut pair = open_pair(&context, QpOptions::default());
            let remote = pair.pd.shared(64, REMOTE_ACCESS).expect("region").remote();
            let other = pair
                .pd
                .create_qp::<Rc>(&pair.cq, &pair.cq, QpOptions::default())
                .expect("unconnected queue pair");
            drop(std::mem::replace(&mut pair.b, other));
            let failed = post_and_retire(&mut pair, verb, remote);
            check_failure(&mut pair, verb, failed, WcStatus::RETRY_EXC_ERR);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn peer_without_receive_exceeds_rnr_retries() {
    for context in roce() {
        for verb in RECEIVED {
            let mut pair = open_pair(&context, QpOptions::default());
            reconnect_without_rnr_retries(&context, &mut pair);
            let region = pair.pd.shared(64, REMOTE_ACCESS).expect("region");
            let failed = post_and_retire(&mut pair, verb, region.remote());
            check_failure(&mut pair, verb, failed, WcStatus::RNR_RETRY_EXC_ERR);
        }
    }
}

/// Connects the pair again, so that `a` does not retry if the peer has no receive.
fn reconnect_without_rnr_retries(context: &Context, pair: &mut Pair) {
    let path = path(context).rnr_retry(0).access(REMOTE_ACCESS);
    let endpoints = [&pair.b, &pair.a].map(|qp| qp.endpoint(&path).expect("endpoint"));
    for (qp, peer) in [&mut pair.a, &mut pair.b].into_iter().zip(endpoints) {
        qp.modify(&QpChange::to(QpState::RESET)).expect("idle");
        qp.init(&path).expect("INIT state");
        qp.connect(&path, &peer).expect("connect");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn message_longer_than_receive_fails_at_both_ends() {
    for (context, options) in roce_paths() {
        for verb in [Send, SendWithImm] {
            let mut pair = open_pair(&context, options);
            pair.b
                .post_recv(wr::recv(pair.pd.buf(4).expect("buffer")).tag(9))
                .expect("receive");
            let remote = RemoteMemory {
                addr: 0,
                len: 8,
                rkey: 0,
            };
            let buf = pair.pd.buf(8).expect("buffer");
            assert!(verb.post(&mut pair.a, buf, remote));
            for retired in pair.retire(2) {
                // Soft-RoCE reports a failed operation at both ends.
                let expected = if retired.tag() == 9 {
                    [WcStatus::LOC_LEN_ERR, WcStatus::LOC_QP_OP_ERR]
                } else {
                    [WcStatus::REM_INV_REQ_ERR, WcStatus::REM_OP_ERR]
                };
                assert!(
                    expected.contains(&retired.status()),
                    "{verb:?}: {retired:?}"
                );
                assert!(retired.into_buf().is_some());
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn requests_posted_in_error_state_are_flushed() {
    for (context, options) in roce_paths() {
        for verb in ALL {
            let mut pair = open_pair(&context, options);
            let remote = pair.pd.shared(64, REMOTE_ACCESS).expect("region").remote();
            pair.a.to_error().expect("ERR state");
            let pool = pair.pd.pool(3, 8).expect("pool");
            let mut posted = 0;
            for _ in 0..3 {
                posted += usize::from(verb.post(
                    &mut pair.a,
                    pool.take().expect("a free buffer"),
                    remote,
                ));
            }
            let flushed = pair.retire(posted);
            assert!(
                flushed
                    .iter()
                    .all(|one| one.status() == WcStatus::WR_FLUSH_ERR),
                "{verb:?}: {flushed:?}"
            );
            drop(flushed);
            drop(pair);
            assert_eq!(pool.available(), 3, "{verb:?}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn failure_flushes_later_requests() {
    for (context, options) in roce_paths() {
        let mut pair = open_pair(&context, options);
        let region = pair.pd.shared(64, REMOTE_ACCESS).expect("region");
        let remote = region.remote();
        let wrong_rkey = RemoteMemory {
            rkey: remote.rkey ^ 0x5500,
            ..remote
        };
        let pool = pair.pd.pool(4, 8).expect("pool");
        for (tag, to) in [remote, wrong_rkey, remote, remote].into_iter().enumerate() {
            let request = wr::write(
                pool.take().expect("a free buffer"),
                RemoteMemory { len: 8, ..to },
            )
            .tag(tag as u64);
            pair.a.post_send(request).expect("post");
        }
        let statuses: Vec<(u64, WcStatus)> = pair
            .retire(4)
            .iter()
            .map(|one| (one.tag(), one.status()))
            .collect();
        let (access, flush) = (WcStatus::REM_ACCESS_ERR, WcStatus::WR_FLUSH_ERR);
        assert_eq!(
            statuses,
            [(0, WcStatus::SUCCESS), (1, access), (2, flush), (3, flush)]
        );
        assert_eq!(pool.available(), 4);
    }
}

/// The crate only posts valid local keys, so this test posts a request with a wrong one itself.
#[test]
#[allow(unsafe_code)]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn raw_request_with_wrong_lkey_matches_no_slot() {
    use rdma_sys::{IBV_SEND_SIGNALED, IBV_WR_SEND, ibv_post_send, ibv_send_wr, ibv_sge};

    for context in roce() {
        let mut pair = open_pair(&context, QpOptions::new().classic_only(true));
        pair.b
            .post_recv(wr::recv(pair.pd.buf(64).expect("buffer")))
            .expect("receive");
        let bytes = [0_u8; 8];
        let mut sge = ibv_sge {
            addr: bytes.as_ptr() as u64,
            length: 8,
            lkey: 0x00de_ad00,
        };
        let mut request = ibv_send_wr {
            sg_list: &raw mut sge,
            num_sge: 1,
            opcode: IBV_WR_SEND,
            send_flags: IBV_SEND_SIGNALED,
            ..Default::default()
        };
        let mut bad = std::ptr::null_mut();
        let qp = pair.a.as_raw().expect("alive").as_ptr();
        // SAFETY: the queue pair is alive, the request and its entry are valid during the call, and
        // the key gives access to no memory.
        let errno = unsafe { ibv_post_send(qp, &raw mut request, &raw mut bad) };
        assert_eq!(errno, 0);
        let (status, rejected) = loop {
            if let Some(completion) = pair.cq.poll().expect("poll").next() {
                break (completion.status(), pair.a.retire(completion).is_err());
            }
        };
        // Soft-RoCE reports it as flushed.
        assert!(
            [WcStatus::LOC_PROT_ERR, WcStatus::WR_FLUSH_ERR].contains(&status),
            "{status}"
        );
        assert!(
            rejected,
            "the completion must not retire a request of this crate"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_refused_length_of_inline_data_is_named_with_its_limit() {
    for context in devices_with(&[verb::RC]) {
        let pd = context.alloc_pd().expect("domain");
        let cq = context.create_cq(CqOptions::new()).expect("queue");
        let create = |inline| {
            let options = QpOptions::new().max_send_wr(4).max_inline_data(inline);
            pd.create_qp::<Rc>(&cq, &cq, options)
        };
        let error = create(1 << 14).expect_err("too much");
        if error.errno() != Some(Errno(libc::EINVAL)) {
            continue;
        }
        let help = error.help().expect("a limit");
        let limit = help.split("at most ").nth(1).expect("a limit");
        let limit = limit.split(' ').next().and_then(|limit| limit.parse().ok());
        let limit: u32 = limit.expect("a number");
        drop(create(limit).expect("granted"));
        create(limit + 1).expect_err("above the limit");
    }
}
