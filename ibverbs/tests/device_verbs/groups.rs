//! Thread groups: each thread has its queue pairs and completion queues in one thread domain.

use std::time::{Duration, Instant};

use ibverbs::{
    AhAttr, ConnectedDuplexTransport, Context, CqOptions, DatagramAttr, Direction, ErrorKind,
    GRH_LEN, ProtectionDomain, Qkey, QpOptions, QueuePair, Rc, Retired, Uc, Ud, WcStatus,
    group::{GroupCompletionQueue, Grouped, ThreadGroup},
    wr::{self, Destination},
};

use crate::lab::{REMOTE_ACCESS, connect, devices_with, path, verb};

const MESSAGES: u32 = 200;

/// Polls until `count` requests of these queue pairs have completed.
fn retire<T: ConnectedDuplexTransport>(
    cq: &mut GroupCompletionQueue,
    qps: &mut [QueuePair<Grouped<T>>],
    count: usize,
) -> Vec<Retired>
where
    Grouped<T>: ConnectedDuplexTransport,
{
    let (mut all, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(20));
    while all.len() < count {
        assert!(Instant::now() < deadline, "{} of {count}", all.len());
        for completion in cq.poll().expect("poll") {
            let mut own = qps.iter_mut();
            let qp = own.find(|qp| qp.id() == completion.queue());
            let retired = qp.expect("a known queue pair").retire(completion);
            all.push(retired.expect("in flight"));
        }
    }
    all
}

/// Sends messages over several connections of one thread, and reads memory.
fn exchange(pd: &ProtectionDomain) {
    let group = ThreadGroup::new(pd).expect("group");
    let options = CqOptions::new().depth(512);
    let mut cq = group.create_cq(options).expect("completion queue");
    let path = path(pd.context()).access(REMOTE_ACCESS);
    let mut qps = Vec::new();
    for _ in 0..3 {
        let options = QpOptions::new().max_inline_data(16);
        let mut a = group.create_qp::<Rc>(&cq, &cq, options).expect("a");
        let mut b = group.create_qp::<Rc>(&cq, &cq, options).expect("b");
        connect(&mut a, &mut b, &path);
        qps.extend([a, b]);
    }
    // The queues keep the domain.
    drop(group);
    for number in 0..MESSAGES {
        for pair in qps.chunks_mut(2) {
            let buf = pd.buf(16).expect("buffer");
            pair[1].post_recv(wr::recv(buf)).expect("receive");
            let bytes = number.to_le_bytes();
            pair[0]
                .post_send(wr::send(wr::Inline(&bytes)))
                .expect("send");
        }
        let mut received = 0;
        for retired in retire(&mut cq, &mut qps, 6) {
            retired.check().expect("success");
            if retired.direction() == Direction::Recv {
                let bytes = retired.into_buf().expect("a buffer");
                assert_eq!(bytes[..], number.to_le_bytes());
                received += 1;
            }
        }
        assert_eq!(received, 3);
    }
    let region = pd.shared(64, REMOTE_ACCESS).expect("region");
    region.write(0, b"read me").expect("within the region");
    let remote = region.remote().slice(0..7).expect("within");
    let into = pd.buf(7).expect("buffer");
    qps[0].post_send(wr::read(into, remote)).expect("read");
    let read = retire(&mut cq, &mut qps, 1).remove(0);
    assert_eq!(&read.into_buf().expect("a buffer")[..], b"read me");
    // Destroying a queue pair takes the lock of the completion queue, on this thread.
    qps[1].to_error().expect("ERR state");
    let buf = pd.buf(8).expect("buffer");
    qps[0].post_send(wr::send(buf)).expect("posted");
    let failed = retire(&mut cq, &mut qps, 1).remove(0);
    assert_eq!(failed.status(), WcStatus::RETRY_EXC_ERR);
    drop(cq);
    drop(qps);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn each_thread_has_a_group() {
    for context in devices_with(&[verb::THREAD_DOMAINS, verb::RC]) {
        let pd = context.alloc_pd().expect("protection domain");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let pd = &pd;
                scope.spawn(move || exchange(pd));
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn groups_have_all_transports_and_their_own_queues() {
    for context in devices_with(&[verb::THREAD_DOMAINS, verb::RC]) {
        let pd = context.alloc_pd().expect("protection domain");
        let group = ThreadGroup::new(&pd).expect("group");
        let other = ThreadGroup::new(&pd).expect("group");
        let mut cq = group.create_cq(CqOptions::default()).expect("queue");
        let options = QpOptions::new().max_inline_data(8);
        let error = other.create_qp::<Rc>(&cq, &cq, options);
        let error = error.expect_err("a queue of another group");
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");

        let (a, b) = (
            group.create_qp::<Uc>(&cq, &cq, options).expect("a"),
            group.create_qp::<Uc>(&cq, &cq, options).expect("b"),
        );
        let mut qps = [a, b];
        let [a, b] = &mut qps;
        connect(a, b, &path(&context));
        let buf = pd.buf(8).expect("buffer");
        b.post_recv(wr::recv(buf)).expect("receive");
        a.post_send(wr::send_with_imm(wr::Empty, 5)).expect("send");
        let both = retire(&mut cq, &mut qps, 2);
        assert!(both.iter().any(|retired| retired.imm_data() == Some(5)));
        datagrams(&context, &pd, &group);
    }
}

/// Sends a datagram from a queue pair of a group to itself.
fn datagrams(context: &Context, pd: &ProtectionDomain, group: &ThreadGroup) {
    const QKEY: Qkey = Qkey(0x1111_1111);
    let mut cq = group.create_cq(CqOptions::default()).expect("queue");
    let options = QpOptions::new().max_inline_data(8);
    let mut qp = group.create_qp::<Ud>(&cq, &cq, options).expect("UD");
    qp.start(&DatagramAttr::new(1, QKEY)).expect("RTS state");
    let own = path(context).sgid_index.expect("a GID");
    let gid = context.gid(1, own).expect("GID").gid;
    let address = pd.create_ah(&AhAttr::for_gid(1, own, gid));
    let there = Destination {
        address: qp.hold_address(&address.expect("handle")).expect("hold"),
        qpn: qp.qp_num(),
        qkey: QKEY,
    };
    let buf = pd.buf(GRH_LEN + 8).expect("buffer");
    qp.post_recv(wr::recv(buf)).expect("receive");
    qp.post_send(wr::send(wr::Inline(b"self")).to(there))
        .expect("send");
    let (mut got, deadline) = (None, Instant::now() + Duration::from_secs(20));
    while got.is_none() {
        assert!(Instant::now() < deadline, "nothing arrived");
        for completion in cq.poll().expect("poll") {
            let retired = qp.retire(completion).expect("in flight");
            retired.check().expect("success");
            if retired.direction() == Direction::Recv {
                got = retired.into_buf();
            }
        }
    }
    assert_eq!(&got.expect("set above")[GRH_LEN..], b"self");
}
