//! Completion counters of EFA (rdma-core 65).

use ibverbs::{
    AccessFlags, AhAttr, CompletionQueue, Context, CqOptions, DatagramAttr, ErrorKind,
    ProtectionDomain, Psn, Qkey, QpOptions, QpState, QueuePair, WcStatus,
    counter::{CompletionCounter, CounterKind, CounterOps},
    efa::{EfaCaps, Srd},
    qp::QpChange,
    wr::{self, Destination},
};
use test_support::lab::report_no_device;

use crate::lab::{devices_with, installed_version, until, verb};

const QKEY: Qkey = Qkey(0x2222_2222);

/// Returns the devices with completion counters.
fn counting_devices() -> impl Iterator<Item = Context> {
    let is_installed = installed_version() >= 65;
    if !is_installed {
        report_no_device("rdma-core 65 or newer is not installed");
    }
    let all = is_installed.then(|| devices_with(&[verb::SRD]));
    all.into_iter().flatten().filter(|context| {
        let caps = context.query_efa().expect("attributes").device_caps;
        caps.contains(EfaCaps::COMP_CNTR)
    })
}

struct Node {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair<Srd>,
}

impl Node {
    /// Creates a queue pair in state RESET.
    fn new(context: &Context) -> Self {
        let pd = context.alloc_pd().expect("protection domain");
        let cq = context.create_cq(CqOptions::new()).expect("queue");
        let options = QpOptions::new().max_inline_data(16);
        let qp = pd.create_qp::<Srd>(&cq, &cq, options).expect("queue pair");
        Self { pd, cq, qp }
    }

    fn start(&mut self) {
        self.qp
            .start(&DatagramAttr::new(1, QKEY))
            .expect("RTS state");
    }

    fn to(&mut self, other: &Self) -> Destination {
        let own = self.pd.context().gids(1).expect("GID table")[0];
        let address = AhAttr::for_gid(1, own.index, own.gid);
        let destination = self.qp.destination(&address, other.qp.qp_num(), QKEY);
        destination.expect("address handle")
    }

    fn retire(&mut self, count: usize) -> Vec<WcStatus> {
        let mut all = Vec::new();
        until("the completions", || {
            for completion in self.cq.poll().expect("poll") {
                all.push(self.qp.retire(completion).expect("in flight").status());
            }
            all.len() >= count
        });
        all
    }
}

fn counter(context: &Context) -> CompletionCounter {
    let counter = context.create_counter(CounterKind::REQUESTS);
    counter.expect("counter")
}

fn counts(counter: &CompletionCounter) -> (u64, u64) {
    let successes = counter.successes().expect("successes");
    (successes, counter.failures().expect("failures"))
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn counters_count_each_operation_of_their_queue_pairs() {
    for context in counting_devices() {
        let (mut a, mut b) = (Node::new(&context), Node::new(&context));
        let [sends, reads, recvs, remote] = [(); 4].map(|()| counter(&context));
        a.qp.attach_counter(&sends, CounterOps::SEND)
            .expect("attached");
        a.qp.attach_counter(&reads, CounterOps::RDMA_READ)
            .expect("attached");
        b.qp.attach_counter(&remote, CounterOps::REMOTE_RDMA_READ)
            .expect("attached");
        // In INIT too.
        let init = QpChange::to(QpState::INIT).port_num(1).pkey_index(0);
        b.qp.modify(&init.qkey(QKEY)).expect("INIT");
        b.qp.attach_counter(&recvs, CounterOps::RECV)
            .expect("attached");
        b.qp.modify(&QpChange::to(QpState::RTR)).expect("RTR");
        let rts = QpChange::to(QpState::RTS).sq_psn(Psn(0));
        b.qp.modify(&rts).expect("RTS");
        a.start();
        let there = a.to(&b);
        for number in 1..=20 {
            let buf = b.pd.buf(16).expect("buffer");
            b.qp.post_recv(wr::recv(buf)).expect("receive");
            let request = wr::send(wr::Inline(b"counted")).to(there);
            a.qp.post_send(request).expect("send");
            a.retire(1);
            b.retire(1);
            until("the counts", || counts(&recvs) == (number, 0));
            assert_eq!(counts(&sends), (number, 0));
        }
        let region = b.pd.shared(64, AccessFlags::REMOTE_READ).expect("region");
        for _ in 0..3 {
            let buf = a.pd.buf(64).expect("buffer");
            let request = wr::read(buf, region.remote()).to(there);
            a.qp.post_send(request).expect("read");
        }
        a.retire(3);
        until("the reads", || counts(&reads) == (3, 0));
        assert_eq!(counts(&remote), (3, 0));
        // A failure counts apart.
        let mut wrong = region.remote();
        wrong.rkey ^= 0x5555;
        let buf = a.pd.buf(64).expect("buffer");
        a.qp.post_send(wr::read(buf, wrong).to(there))
            .expect("posted");
        assert_ne!(a.retire(1)[0], WcStatus::SUCCESS);
        until("the failure", || counts(&reads) == (3, 1));
        // So does a flushed receive.
        let buf = b.pd.buf(16).expect("buffer");
        b.qp.post_recv(wr::recv(buf)).expect("receive");
        b.qp.modify(&QpChange::to(QpState::ERR)).expect("ERR");
        assert_eq!(b.retire(1)[0], WcStatus::WR_FLUSH_ERR);
        until("the flush", || counts(&recvs) == (20, 1));
        assert_eq!((counts(&sends), counts(&remote)), ((20, 0), (3, 0)));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_counter_of_several_queue_pairs_outlives_its_handles() {
    for context in counting_devices() {
        let shared = counter(&context);
        let mut b = Node::new(&context);
        b.qp.attach_counter(&shared, CounterOps::RECV)
            .expect("attached");
        b.start();
        let mut a = Node::new(&context);
        a.qp.attach_counter(&shared, CounterOps::SEND)
            .expect("attached");
        a.start();
        let there = a.to(&b);
        let mut exchange = || {
            let buf = b.pd.buf(16).expect("buffer");
            b.qp.post_recv(wr::recv(buf)).expect("receive");
            let request = wr::send(wr::Inline(b"counted")).to(there);
            a.qp.post_send(request).expect("send");
            a.retire(1);
            b.retire(1);
        };
        exchange();
        until("both", || counts(&shared) == (2, 0));
        // The queue pairs keep the memory that the device writes.
        drop(shared);
        let churn: Vec<_> = (0..64).map(|_| counter(&context)).collect();
        (0..10).for_each(|_| exchange());
        assert!(churn.iter().all(|other| counts(other) == (0, 0)));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn counts_are_set_and_added_and_wrap() {
    for context in counting_devices() {
        let caps = context.query_counter_caps().expect("limits");
        assert!(
            caps.max_counters > 1 && caps.max_value > 1 << 20,
            "{caps:?}"
        );
        assert!(caps.ops.contains(CounterOps::SEND | CounterOps::RECV));
        let counter = counter(&context);
        assert_eq!(counts(&counter), (0, 0));
        counter.set_successes(5).expect("set");
        counter.add_successes(3).expect("added");
        counter.set_failures(7).expect("set");
        counter.add_failures(2).expect("added");
        until("the changes", || counts(&counter) == (8, 9));
        counter.set_successes(caps.max_value).expect("set");
        counter.add_successes(1).expect("added");
        until("the wrap", || counts(&counter) == (0, 9));
        let error = context.create_counter(CounterKind::BYTES);
        let error = error.expect_err("EFA counts requests");
        assert!(error.is_unsupported(), "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn attaching_checks_state_operations_and_device() {
    for context in counting_devices() {
        let counter = counter(&context);
        let mut node = Node::new(&context);
        let none = node.qp.attach_counter(&counter, CounterOps::empty());
        assert_eq!(none.expect_err("nothing").kind(), ErrorKind::InvalidInput);
        let write = node.qp.attach_counter(&counter, CounterOps::RDMA_WRITE);
        assert!(write.expect_err("the device has none").is_unsupported());
        let ops = CounterOps::SEND | CounterOps::RECV;
        node.qp.attach_counter(&counter, ops).expect("attached");
        let again = node.qp.attach_counter(&counter, CounterOps::RECV);
        let errno = again.expect_err("counted already").errno();
        assert_eq!(errno.map(|errno| errno.0), Some(libc::EBUSY));
        node.start();
        let late = node.qp.attach_counter(&counter, CounterOps::RDMA_READ);
        let late = late.expect_err("in RTS");
        assert_eq!(late.kind(), ErrorKind::InvalidInput, "{late}");
        assert!(late.to_string().contains("RTS"), "{late}");
        let other = context.device().open().expect("a second context");
        let mut foreign = Node::new(&other);
        let error = foreign.qp.attach_counter(&counter, ops);
        assert_eq!(error.expect_err("foreign").kind(), ErrorKind::Mismatch);
    }
}
