//! The dynamically connected transport of mlx5: one initiator and many targets.

mod streams;

use std::time::{Duration, Instant};

use ibverbs::{
    AccessFlags, AhAttr, CompletionQueue, Context, CqOptions, DatagramTransport, Direction, Error,
    ErrorKind, PostError, ProtectionDomain, QpOptions, QpState, QueuePair, RcPath, Retired,
    SendTransport, SharedReceiveQueue, SharedRegion, SrqOptions, WcStatus,
    dc::{Dc, DcDestination, DcKey, DcTarget},
    qp::QpChange,
    wr,
};

use crate::lab::{REMOTE_ACCESS, devices_with, path, until, verb};

struct Initiator<T: SendTransport = Dc> {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair<T>,
}

struct Target {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    srq: SharedReceiveQueue,
    dct: DcTarget,
    region: SharedRegion,
    key: DcKey,
}

fn initiator(context: &Context) -> Initiator {
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context
        .create_cq(CqOptions::new().depth(1024))
        .expect("completion queue");
    let options = QpOptions::new().max_send_wr(128).max_inline_data(64);
    let mut qp = pd.create_dc_qp(&cq, options).expect("initiator");
    qp.start(&initiator_path(context)).expect("RTS state");
    Initiator { pd, cq, qp }
}

fn initiator_path(context: &Context) -> RcPath {
    path(context).timeout(14).retry_cnt(3).max_rd_atomic(4)
}

fn target(context: &Context, key: u64, access: AccessFlags) -> Target {
    let (pd, key) = (context.alloc_pd().expect("protection domain"), DcKey(key));
    let cq = context
        .create_cq(CqOptions::new().depth(1024))
        .expect("completion queue");
    let srq = pd.create_srq(SrqOptions::new().max_wr(128)).expect("queue");
    let mut dct = pd.create_dc_target(&cq, &srq, key).expect("target");
    dct.start(&path(context).access(access)).expect("RTR state");
    let region = pd.shared(4096, REMOTE_ACCESS).expect("region");
    Target {
        pd,
        cq,
        srq,
        dct,
        region,
        key,
    }
}

impl<T: DatagramTransport> Initiator<T> {
    fn to(&mut self, target: &Target) -> DcDestination {
        let path = path(self.pd.context());
        let peer = target.dct.endpoint(&path).expect("endpoint");
        let index = path.sgid_index.expect("a GID");
        let address = AhAttr::for_gid(1, index, peer.gid);
        let address = self.pd.create_ah(&address).expect("address handle");
        DcDestination {
            address: self.qp.hold_address(&address).expect("hold"),
            qpn: peer.qpn,
            key: target.key,
        }
    }

    /// Retires `count` completions.
    fn retire(&mut self, count: usize) -> Vec<Retired> {
        let mut all = Vec::new();
        until("the completions", || {
            for completion in self.cq.poll().expect("poll") {
                assert_eq!(completion.direction(), Direction::Send);
                all.push(self.qp.retire(completion).expect("in flight"));
                if all.len() == count {
                    break;
                }
            }
            all.len() == count
        });
        all
    }
}

impl Target {
    fn post(&mut self, count: u64) {
        for tag in 0..count {
            let buf = self.pd.buf(64).expect("buffer");
            let request = wr::recv(buf).tag(tag);
            self.srq.post_recv(request).expect("receive");
        }
    }

    /// Waits for the next message.
    fn receive(&mut self) -> Retired {
        let mut received = None;
        until("the message", || {
            if let Some(completion) = self.cq.poll().expect("poll").next() {
                assert_eq!(completion.qp_num(), self.dct.qp_num());
                assert_eq!(completion.queue(), self.srq.id());
                assert_eq!(self.srq.queue_pair(&completion), Some(self.dct.id()));
                received = Some(self.srq.retire(completion).expect("in flight"));
            }
            received.is_some()
        });
        received.expect("set above")
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn one_initiator_sends_to_many_targets() {
    const TARGETS: u32 = 5;
    const ROUNDS: u32 = 20;
    for context in devices_with(&[verb::DC]) {
        let mut a = initiator(&context);
        let mut targets: Vec<Target> = (0..TARGETS)
            .map(|n| target(&context, 100 + u64::from(n), AccessFlags::empty()))
            .collect();
        let there: Vec<DcDestination> = targets.iter().map(|target| a.to(target)).collect();
        for target in &mut targets {
            target.post(ROUNDS.into());
        }
        for round in 0..ROUNDS {
            let Initiator { pd, qp, .. } = &mut a;
            qp.batch(|batch| -> Result<(), Error> {
                for (&to, n) in there.iter().zip(0..) {
                    let mut message = pd.buf(8)?;
                    message.copy_from_slice(&u64::from(n * 1000 + round).to_le_bytes());
                    let request = wr::send_with_imm(message, round).to(to);
                    // The last completion of a round retires all of it.
                    batch.send(request.signaled(n + 1 == TARGETS))?;
                }
                Ok(())
            })
            .expect("batch");
            a.retire(1).remove(0).check().expect("success");
            assert!(a.qp.is_idle());
        }
        for (target, n) in targets.iter_mut().zip(0..) {
            for round in 0..ROUNDS {
                let received = target.receive();
                received.check().expect("success");
                assert_eq!(received.imm_data(), Some(round));
                let bytes = received.into_buf().expect("a buffer");
                assert_eq!(bytes[..], u64::from(n * 1000 + round).to_le_bytes());
            }
        }
    }
}

/// Checks that no request completes for 50 milliseconds.
fn nothing_completes<T: SendTransport>(a: &mut Initiator<T>) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(50) {
        let completed = a.cq.poll().expect("poll").next();
        assert!(completed.is_none(), "{completed:?}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn requests_complete_in_order_although_a_target_has_no_receive() {
    for context in devices_with(&[verb::DC]) {
        let mut a = initiator(&context);
        let mut slow = target(&context, 1, AccessFlags::empty());
        let mut fast = target(&context, 2, AccessFlags::empty());
        fast.post(1);
        let (to_slow, to_fast) = (a.to(&slow), a.to(&fast));
        for (tag, there) in [(0_u64, to_slow), (1, to_slow), (2, to_fast)] {
            let message = tag.to_le_bytes();
            let request = wr::send(wr::Inline(&message[..1])).to(there).tag(tag);
            a.qp.post_send(request).expect("posted");
        }
        nothing_completes(&mut a);
        slow.post(1);
        assert_eq!(a.retire(1)[0].tag(), 0);
        nothing_completes(&mut a);
        slow.post(1);
        let tags: Vec<u64> = a.retire(2).iter().map(Retired::tag).collect();
        assert_eq!(tags, [1, 2]);
        for byte in [0, 1] {
            let message = slow.receive().into_buf().expect("a buffer");
            assert_eq!(message[..], [byte]);
        }
        let message = fast.receive().into_buf().expect("a buffer");
        assert_eq!(message[..], [2]);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn memory_of_each_target_is_written_and_read() {
    for context in devices_with(&[verb::DC]) {
        let mut a = initiator(&context);
        for (n, key) in [(1_u8, 7), (2, 8)] {
            let mut b = target(&context, key, REMOTE_ACCESS);
            let there = a.to(&b);
            let at = |from, len| b.region.remote().slice(from..from + len).expect("within");
            let (word, page) = (at(0, 8), at(64, 100));
            let mut data = a.pd.buf(100).expect("buffer");
            data.fill(n);
            a.qp.post_send(wr::write(data, page).to(there))
                .expect("write");
            b.post(1);
            let inline = wr::Inline(&[n; 8]);
            a.qp.post_send(wr::write_with_imm(inline, word, 99).to(there))
                .expect("write with immediate data");
            let received = b.receive();
            received.check().expect("success");
            assert_eq!(received.imm_data(), Some(99));
            let into = a.pd.buf(100).expect("buffer");
            a.qp.post_send(wr::read(into, page).to(there).fenced(true))
                .expect("read");
            let into = a.pd.buf(8).expect("buffer");
            a.qp.post_send(wr::fetch_add(into, word, 5).to(there))
                .expect("addition");
            let before = u64::from_ne_bytes([n; 8]);
            let into = a.pd.buf(8).expect("buffer");
            let swap = wr::compare_swap(into, word, before + 5, 77);
            a.qp.post_send(swap.to(there)).expect("swap");
            let mut done = a.retire(5).into_iter();
            done.by_ref()
                .take(2)
                .for_each(|one| one.check().expect("write"));
            let mut bytes = || {
                let retired = done.next().expect("five");
                retired.check().expect("success");
                retired.into_buf().expect("a buffer").to_vec()
            };
            assert_eq!(bytes(), [n; 100]);
            assert_eq!(bytes(), before.to_ne_bytes());
            assert_eq!(bytes(), (before + 5).to_ne_bytes());
            let mut now = [0; 8];
            b.region.read(0, &mut now).expect("within the region");
            assert_eq!(u64::from_ne_bytes(now), 77);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn wrong_key_or_missing_access_fails_and_returns_buffers() {
    for context in devices_with(&[verb::DC]) {
        let mut b = target(&context, 1, AccessFlags::REMOTE_READ);
        b.post(1);
        let mut a = initiator(&context);
        let mut there = a.to(&b);
        there.key = DcKey(2);
        // A key grants access to memory, so logs do not contain it.
        assert_eq!(format!("{:?}", there.key), "DcKey(..)");
        let message = a.pd.buf(16).expect("buffer");
        a.qp.post_send(wr::send(message).to(there).tag(5))
            .expect("posted");
        let failed = a.retire(1).remove(0);
        assert!(!failed.is_success(), "{failed:?}");
        assert_eq!(failed.tag(), 5);
        assert_eq!(failed.into_buf().expect("the buffer").len(), 16);
        assert_eq!(a.qp.state().expect("state"), QpState::ERR);

        // A new initiator with the right key may read, but not write.
        let mut a = initiator(&context);
        let there = a.to(&b);
        let into = a.pd.buf(64).expect("buffer");
        let from = b.region.remote().slice(0..64).expect("within");
        a.qp.post_send(wr::read(into, from).to(there))
            .expect("read");
        a.retire(1).remove(0).check().expect("success");
        a.qp.post_send(wr::write(wr::Inline(b"x"), from).to(there))
            .expect("write");
        let failed = a.retire(1).remove(0);
        assert_eq!(failed.status(), WcStatus::REM_ACCESS_ERR, "{failed:?}");
        let mut byte = [1];
        b.region.read(0, &mut byte).expect("within the region");
        assert_eq!(byte, [0]);

        // The target still works, and no message has arrived.
        let mut a = initiator(&context);
        let there = a.to(&b);
        a.qp.post_send(wr::send(wr::Inline(b"fine")).to(there))
            .expect("send");
        let received = b.receive();
        assert_eq!(received.tag(), 0);
        assert_eq!(&received.into_buf().expect("a buffer")[..], b"fine");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn destroyed_queue_pair_returns_buffers_in_flight() {
    for context in devices_with(&[verb::DC]) {
        let mut a = initiator(&context);
        let b = target(&context, 3, AccessFlags::empty());
        let there = a.to(&b);
        // The target has no receive, so the message waits.
        let message = a.pd.buf(32).expect("buffer");
        a.qp.post_send(wr::send(message).to(there).tag(9))
            .expect("send");
        let sends = a.qp.destroy().expect("destroyed").sends;
        assert_eq!((sends.len(), sends[0].0, sends[0].1.len()), (1, 9, 32));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn target_keeps_its_queues_and_domain_alive() {
    for context in devices_with(&[verb::DC]) {
        let mut a = initiator(&context);
        let mut b = target(&context, 4, REMOTE_ACCESS);
        b.post(1);
        let there = a.to(&b);
        let Target {
            pd,
            cq,
            srq,
            dct,
            region,
            ..
        } = b;
        let remote = region.remote().slice(0..4).expect("within");
        drop((srq, cq, pd));
        // The domain has a queue pair of its own, so the memory of the region stays.
        a.qp.post_send(wr::write(wr::Inline(b"data"), remote).to(there))
            .expect("write");
        a.qp.post_send(wr::send(wr::Inline(b"data")).to(there))
            .expect("send");
        for retired in a.retire(2) {
            retired.check().expect("success");
        }
        let mut bytes = [0; 4];
        region.read(0, &mut bytes).expect("within the region");
        assert_eq!(&bytes, b"data");
        // Initiators could still access the region.
        let refused = region.try_into_buf().expect_err("the target exists");
        assert_eq!(refused.error().kind(), ErrorKind::Mismatch);
        dct.destroy().expect("destroyed");
        let buf = refused.into_region().try_into_buf();
        assert_eq!(&buf.expect("no queue pair is left")[..4], b"data");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn invalid_uses_are_errors_with_names() {
    for context in devices_with(&[verb::DC]) {
        let (mut a, mut b) = (initiator(&context), target(&context, 5, REMOTE_ACCESS));
        let path = path(&context);
        let error = a.qp.start(&path).expect_err("already started");
        assert!(error.to_string().contains("DC initiator"), "{error}");
        let error = b.dct.start(&path).expect_err("already started");
        assert!(error.to_string().contains("DC target"), "{error}");
        assert_eq!(b.dct.state().expect("state"), QpState::RTR);
        let drain = QpChange::to(QpState::SQD);
        let error = a.qp.modify(&drain).expect_err("no such state");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");

        let wrong = a.pd.create_dc_target(&b.cq, &b.srq, b.key);
        let error = wrong.expect_err("another domain");
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");

        let (there, other) = (a.to(&b), initiator(&context).to(&b));
        let held_elsewhere = a.qp.post_send(wr::send(wr::Empty).to(other));
        let rejected = held_elsewhere.expect_err("held by another queue pair");
        assert_eq!(rejected.error(), PostError::WrongQueue);
        a.qp.release_addresses().expect("nothing in flight");
        let rejected = a.qp.post_send(wr::send(wr::Empty).to(there));
        assert_eq!(
            rejected.expect_err("released").error(),
            PostError::WrongQueue
        );
    }
}
