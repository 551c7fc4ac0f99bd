//! Scalable reliable datagrams of EFA: messages and reads that complete in any order.

mod lab;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use ibverbs::{
    AccessFlags, AhAttr, Buf, CompletionQueue, Context, CqOptions, Direction, Error, ErrorKind,
    PostError, ProtectionDomain, Psn, Qkey, QpOptions, QpState, QueuePair, WcStatus,
    efa::{EfaCaps, Srd},
    qp::QpChange,
    wr::{self, Destination},
};
use lab::{LeakCheck, devices_with, verb};

const QKEY: Qkey = Qkey(0x2222_2222);
/// Requests in flight at the same time.
const DEPTH: u32 = 64;

struct Node {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair<Srd>,
}

fn node(context: &Context, extended: bool) -> Node {
    let pd = context.alloc_pd().expect("protection domain");
    let cq = CqOptions::new().depth(4 * DEPTH).extended(extended);
    let cq = context.create_cq(cq).expect("completion queue");
    let options = QpOptions::new()
        .max_send_wr(DEPTH)
        .max_recv_wr(DEPTH)
        .max_inline_data(32);
    let mut qp = pd.create_qp::<Srd>(&cq, &cq, options).expect("queue pair");
    qp.start(1, 0, QKEY, Psn(0)).expect("RTS state");
    Node { pd, cq, qp }
}

impl Node {
    /// Returns the destination of `other`, from this queue pair.
    fn to(&mut self, other: &Node) -> Destination {
        let own = self.pd.context().gids(1).expect("GID table")[0];
        let address = AhAttr::for_gid(1, own.index, own.gid);
        let address = self.pd.create_ah(&address).expect("address handle");
        Destination {
            address: self.qp.hold_address(&address).expect("hold"),
            qpn: other.qp.qp_num(),
            qkey: QKEY,
        }
    }

    /// Retires the completions that are there, and passes each with its source queue pair.
    fn retire(&mut self, mut each: impl FnMut(ibverbs::Retired, ibverbs::Qpn)) {
        for completion in self.cq.poll().expect("poll") {
            let source = completion.source().qpn;
            each(self.qp.retire(completion).expect("in flight"), source);
        }
    }
}

/// Calls `step` until it returns `true`.
fn until(what: &str, mut step: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !step() {
        assert!(Instant::now() < deadline, "{what} did not happen");
    }
}

fn pair(context: &Context, extended: bool) -> (Node, Node, Destination) {
    let (mut a, b) = (node(context, extended), node(context, extended));
    let there = a.to(&b);
    (a, b, there)
}

/// Returns a buffer with `len` bytes that depend on `number`.
fn filled(pd: &ProtectionDomain, number: u32, len: usize) -> Buf {
    let mut buf = pd.buf(len).expect("buffer");
    for (byte, at) in buf.iter_mut().zip(number..) {
        *byte = at.to_le_bytes()[0];
    }
    buf
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messages_arrive_once_and_intact_in_any_order() {
    const COUNT: u32 = 2000;
    let _leak_check = LeakCheck::new();
    for context in devices_with(&[verb::SRD]) {
        for extended in [false, true] {
            let (mut a, mut b, there) = pair(&context, extended);
            let len = |number: u32| 1 + number as usize * 37 % 8000;
            let (mut posted, mut sent, mut overtaken) = (0, 0, false);
            let mut received = HashSet::new();
            until("all messages", || {
                while b.qp.recv_slots_free() > 0 {
                    let buf = b.pd.buf(8192).expect("buffer");
                    b.qp.post_recv(wr::recv(buf)).expect("receive");
                }
                // Batches of eight, which the adapter takes together.
                while posted < COUNT && a.qp.send_slots_free() >= 8 {
                    let Node { pd, qp, .. } = &mut a;
                    qp.batch(|batch| -> Result<(), Error> {
                        for number in posted..posted + 8 {
                            let message = filled(pd, number, len(number));
                            let request = wr::send_with_imm(message, number).to(there);
                            batch.send(request.unsignaled())?;
                        }
                        Ok(())
                    })
                    .expect("batch");
                    posted += 8;
                }
                a.retire(|retired, _| {
                    retired.ok().expect("success");
                    sent += 1;
                });
                let from = a.qp.qp_num();
                b.retire(|retired, source| {
                    retired.ok().expect("success");
                    assert_eq!(source, from);
                    let number = retired.imm_data().expect("immediate data");
                    overtaken |= received.len() != number as usize;
                    assert!(received.insert(number), "{number} arrived twice");
                    let bytes = retired.into_buf().expect("a buffer");
                    assert_eq!(bytes.len(), len(number));
                    let wrong = bytes.iter().zip(number..);
                    assert!(wrong.clone().all(|(byte, at)| *byte == at.to_le_bytes()[0]));
                });
                sent == COUNT && received.len() == COUNT as usize
            });
            assert!(overtaken, "the test has not seen another order");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn reads_return_each_its_bytes_in_any_order() {
    const COUNT: u32 = 500;
    const PIECE: u32 = 1000;
    let _leak_check = LeakCheck::new();
    for context in devices_with(&[verb::SRD]) {
        let caps = context.query_efa().expect("attributes").device_caps;
        assert!(caps.contains(EfaCaps::RDMA_READ), "{caps:?}");
        let (mut a, b, there) = pair(&context, false);
        let access = AccessFlags::REMOTE_READ;
        let region = b.pd.shared(100 * PIECE as usize, access).expect("region");
        let source: Vec<u8> = (0..100 * PIECE).map(|at| at.to_le_bytes()[0]).collect();
        region.write(0, &source).expect("within the region");
        let remote = region.remote();
        let start = |number: u32| u64::from(number % 100 * PIECE);
        let (mut posted, mut done, mut overtaken) = (0, 0, false);
        until("all reads", || {
            // Batches of four.
            while posted < COUNT && a.qp.send_slots_free() >= 4 {
                let Node { pd, qp, .. } = &mut a;
                qp.batch(|batch| -> Result<(), Error> {
                    for number in posted..posted + 4 {
                        let piece = remote.slice(start(number), PIECE.into());
                        let piece = piece.expect("within the region");
                        let into = pd.buf(PIECE as usize)?;
                        batch.send(wr::read(into, piece).to(there).tag(number.into()))?;
                    }
                    Ok(())
                })
                .expect("batch");
                posted += 4;
            }
            a.retire(|retired, _| {
                retired.ok().expect("success");
                let number = u32::try_from(retired.tag()).expect("a number");
                overtaken |= number != done;
                done += 1;
                let at = usize::try_from(start(number)).expect("small");
                let bytes = retired.into_buf().expect("a buffer");
                assert_eq!(&bytes[..], &source[at..at + PIECE as usize]);
            });
            done == COUNT
        });
        assert!(overtaken, "the test has not seen another order");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn read_with_a_wrong_key_fails_and_returns_its_buffer() {
    let _leak_check = LeakCheck::new();
    for context in devices_with(&[verb::SRD]) {
        let (mut a, b, there) = pair(&context, true);
        let region = b.pd.shared(64, AccessFlags::REMOTE_READ).expect("region");
        let mut remote = region.remote();
        remote.rkey ^= 0x5555;
        let buf = a.pd.buf(64).expect("buffer");
        a.qp.post_send(wr::read(buf, remote).to(there))
            .expect("posted");
        let mut status = None;
        until("the completion", || {
            a.retire(|retired, _| {
                status = Some(retired.status());
                assert_eq!(retired.direction(), Direction::Send);
                assert_eq!(retired.into_buf().expect("the buffer").capacity(), 64);
            });
            status.is_some()
        });
        // No source says which of the errors of the peer the adapter reports.
        let status = status.expect("set above");
        assert!(
            ![WcStatus::SUCCESS, WcStatus::WR_FLUSH_ERR].contains(&status),
            "{status}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn requests_that_the_device_lacks_are_rejected() {
    let _leak_check = LeakCheck::new();
    for context in devices_with(&[verb::SRD]) {
        let (mut a, mut b, there) = pair(&context, false);
        let region = b.pd.shared(64, AccessFlags::REMOTE_READ).expect("region");
        let caps = context.query_efa().expect("attributes").device_caps;
        let fenced = wr::send(a.pd.buf(8).expect("buffer")).to(there).fenced();
        let rejected = a.qp.post_send(fenced).expect_err("no fence");
        assert_eq!(rejected.error(), PostError::UnsupportedFlag);
        let buf = rejected.into_payload().expect("not posted");
        let solicited = wr::send(buf).to(there).solicited();
        let rejected = a.qp.post_send(solicited).expect_err("no such flag");
        assert_eq!(Error::from(rejected).kind(), ErrorKind::Unsupported);
        if !caps.contains(EfaCaps::RDMA_WRITE) {
            let write = wr::write(wr::Inline(b"x"), region.remote()).to(there);
            let rejected = a.qp.post_send(write).expect_err("no write");
            assert_eq!(rejected.error(), PostError::Unsupported);
        }
        let theirs = Destination {
            address: b.to(&a).address,
            ..there
        };
        let rejected = a.qp.post_send(wr::send(wr::Empty).to(theirs));
        let rejected = rejected.expect_err("held by the other queue pair");
        assert_eq!(rejected.error(), PostError::WrongQueue);
        // The queue works afterwards.
        let receive = wr::recv(b.pd.buf(8).expect("buffer"));
        b.qp.post_recv(receive).expect("receive");
        a.qp.post_send(wr::send(wr::Inline(b"fine")).to(there))
            .expect("send");
        let mut received = false;
        until("the message", || {
            b.retire(|retired, _| {
                assert_eq!(&retired.into_buf().expect("a buffer")[..], b"fine");
                received = true;
            });
            received
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn destroy_returns_the_buffers_in_flight() {
    let _leak_check = LeakCheck::new();
    for context in devices_with(&[verb::SRD]) {
        let (mut a, b, there) = pair(&context, false);
        // `b` has no receives, so the message waits.
        let message = filled(&a.pd, 0, 100);
        a.qp.post_send(wr::send(message).to(there).tag(7))
            .expect("send");
        let buf = a.pd.buf(16).expect("buffer");
        a.qp.post_recv(wr::recv(buf)).expect("receive");
        let reclaimed = a.qp.destroy().expect("destroyed");
        assert_eq!(reclaimed.sends.len(), 1);
        assert_eq!((reclaimed.sends[0].0, reclaimed.sends[0].1.len()), (7, 100));
        assert_eq!(reclaimed.recvs.len(), 1);
        drop(b);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn states_and_attributes_are_those_of_the_driver() {
    let _leak_check = LeakCheck::new();
    for context in devices_with(&[verb::SRD]) {
        let attr = context.query_efa().expect("attributes");
        assert_eq!(
            attr.max_sq_wr,
            context.query_device().expect("device").max_qp_wr
        );
        assert!(attr.max_rdma_size > 0, "{attr:?}");
        let Node { pd, cq, mut qp } = node(&context, false);
        assert_eq!(qp.query().expect("attributes").state, QpState::RTS);
        assert!(format!("{qp:?}").contains("SRD"), "{qp:?}");
        let error = qp.start(1, 0, QKEY, Psn(0)).expect_err("already started");
        assert!(error.to_string().contains("SRD queue pair"), "{error}");

        let mut other = pd
            .create_qp::<Srd>(&cq, &cq, QpOptions::default())
            .expect("queue pair");
        let early = other.post_recv(wr::recv(pd.buf(8).expect("buffer")));
        let error = Error::from(early.expect_err("in state RESET"));
        assert_eq!(error.kind(), ErrorKind::WrongState, "{error}");
        let init = QpChange::to(QpState::INIT).port_num(1).pkey_index(0);
        let error = other.modify(&init).expect_err("no queue key");
        assert!(error.to_string().contains("qkey"), "{error}");
        other.modify(&init.qkey(QKEY)).expect("INIT");
        other.modify(&QpChange::to(QpState::RTR)).expect("RTR");
        let rts = QpChange::to(QpState::RTS).sq_psn(Psn(0)).rnr_retry(3);
        other.modify(&rts).expect("RTS");

        let own = context.gids(1).expect("GID table")[0];
        let ah = pd.create_ah(&AhAttr::for_gid(1, own.index, own.gid));
        let number = ah.expect("address handle").efa_number();
        assert_ne!(number.expect("the number"), 0xffff);

        let srq = QpOptions::new().max_send_sge(1 + u32::from(attr.max_sq_sge));
        let error = pd.create_qp::<Srd>(&cq, &cq, srq).expect_err("too many");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}
