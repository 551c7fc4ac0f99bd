//! What the device tests share: the devices, and two connected queue pairs.

#![allow(dead_code, unused_imports, reason = "each test program uses its part")]

mod rest;

use std::time::{Duration, Instant};

use ibverbs::{
    AccessFlags, CompletionQueue, Connected, Context, CqOptions, Device, ProtectionDomain, QpOptions, QueuePair, Rc,
    RcPath, Retired, TransportType, WcStatus,
};

pub(crate) use rest::Rest;

/// The devices to test on; a run without one is a failed run.
pub(crate) fn devices() -> Vec<Context> {
    let names =
        std::env::var("RDMA_LAB_DEVICES").expect("RDMA_LAB_DEVICES names the devices to test on: run by ci/lab");
    let all: Vec<Context> =
        names.split_whitespace().map(|name| Device::by_name(name).expect(name).open().expect(name)).collect();
    assert!(!all.is_empty(), "RDMA_LAB_DEVICES names no device");
    all
}

/// Those that can connect queue pairs without rdma_cm.
pub(crate) fn roce() -> Vec<Context> {
    let all: Vec<Context> =
        devices().into_iter().filter(|context| context.device().transport() == TransportType::IB).collect();
    assert!(!all.is_empty(), "no device here connects without rdma_cm");
    for context in &all {
        println!("device: {}", context.device_name());
    }
    all
}

pub(crate) struct Pair<T: Connected = Rc> {
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) a: QueuePair<T>,
    pub(crate) b: QueuePair<T>,
}

/// Two connected queue pairs of one device.
pub(crate) fn pair(context: &Context, options: QpOptions) -> Pair {
    pair_of::<Rc>(context, options, AccessFlags::empty())
}

/// As [`pair`], of transport `T` and open to each other as `access` says.
pub(crate) fn pair_of<T: Connected>(context: &Context, options: QpOptions, access: AccessFlags) -> Pair<T> {
    let port = context.query_port(1).expect("port 1");
    let gid = context
        .gids(1)
        .expect("GID table")
        .into_iter()
        .find(|entry| !entry.gid.is_link_local())
        .expect("an address on the netdev");
    let pd = context.alloc_pd().expect("domain");
    let cq = context
        .create_cq(CqOptions { depth: 1024, extended: !options.classic_only, ..CqOptions::default() })
        .expect("queue");
    let mut a = pd.create_qp::<T>(&cq, &cq, options).expect("a");
    let mut b = pd.create_qp::<T>(&cq, &cq, options).expect("b");
    let path = RcPath {
        // 67 ms: on a slow machine a shorter one is over before the peer had a processor.
        timeout: 14,
        retry_cnt: 3,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        access,
        ..RcPath::new(1, gid.index, port.active_mtu)
    };
    for qp in [&mut a, &mut b] {
        qp.init(&path).expect("INIT");
    }
    a.connect(&path, &b.endpoint(&path).expect("b")).expect("a connects");
    b.connect(&path, &a.endpoint(&path).expect("a")).expect("b connects");
    Pair { pd, cq, a, b }
}

impl<T: Connected> Pair<T> {
    /// Polls until `count` requests have retired.
    pub(crate) fn retire(&mut self, count: usize) -> Vec<Retired> {
        let mut all = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(20);
        while all.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} completions came", all.len());
            for completion in self.cq.poll().expect("poll") {
                let qp = if completion.queue() == self.a.id() { &mut self.a } else { &mut self.b };
                all.push(qp.retire(completion).expect("in flight"));
            }
        }
        all
    }

    /// Polls until a completion comes that is of neither: of a request posted by hand.
    pub(crate) fn retire_foreign(&mut self) -> WcStatus {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < deadline, "no completion came");
            if let Some(completion) = self.cq.poll().expect("poll").next() {
                let status = completion.status();
                self.b.retire(completion).expect_err("not posted through it");
                return status;
            }
        }
    }
}

/// The extended verbs and the classic ones.
pub(crate) fn both_forms() -> [QpOptions; 2] {
    let options = QpOptions { max_inline_data: 64, ..QpOptions::default() };
    [options, QpOptions { classic_only: true, ..options }]
}
