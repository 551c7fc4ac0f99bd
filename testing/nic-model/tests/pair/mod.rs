//! Two connected queue pairs on the model in step mode.

#![allow(dead_code, reason = "each test program uses its part")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use ibverbs::{
    AccessFlags, CompletionQueue, Context, CqOptions, Device, GidIndex, ProtectionDomain,
    QpOptions, QueuePair, Rc, RcPath, Retired, WcStatus, wr,
};
use nic_model::{Drive, Options};

/// The tests of a program share the model, and each of them counts its steps.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub(crate) struct Pair {
    pub(crate) a: QueuePair<Rc>,
    pub(crate) b: QueuePair<Rc>,
    pub(crate) cq: CompletionQueue,
    pub(crate) pd: ProtectionDomain,
    pub(crate) context: Context,
    _alone: MutexGuard<'static, ()>,
}

/// All remote access rights.
pub(crate) const REMOTE: AccessFlags = AccessFlags::REMOTE_READ
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC);

/// Connects two queue pairs of `mlx5_0`.
pub(crate) fn connect() -> Pair {
    connect_with(|path| path)
}

/// Opens `mlx5_0`, which no other test of the program uses meanwhile.
pub(crate) fn open() -> (Context, MutexGuard<'static, ()>) {
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    nic_model::start(Options::new().drive(Drive::Step)).expect("start of the model");
    let device = Device::by_name("mlx5_0").expect("mlx5_0");
    (device.open().expect("open"), alone)
}

/// Connects two queue pairs with a changed path.
pub(crate) fn connect_with(change: impl FnOnce(RcPath) -> RcPath) -> Pair {
    let (context, alone) = open();
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context
        .create_cq(CqOptions::new().depth(256))
        .expect("completion queue");
    let create = || {
        pd.create_qp::<Rc>(&cq, &cq, QpOptions::new().max_inline_data(64))
            .expect("queue pair")
    };
    let (mut a, mut b) = (create(), create());
    let mtu = context.query_port(1).expect("port 1").active_mtu;
    let path = change(
        RcPath::new(1, GidIndex(0), mtu)
            .access(REMOTE)
            .max_rd_atomic(4)
            .max_dest_rd_atomic(4),
    );
    a.init(&path).expect("INIT state");
    b.init(&path).expect("INIT state");
    let (to_a, to_b) = (
        a.endpoint(&path).expect("endpoint"),
        b.endpoint(&path).expect("endpoint"),
    );
    a.connect(&path, &to_b).expect("a connects");
    b.connect(&path, &to_a).expect("b connects");
    Pair {
        a,
        b,
        cq,
        pd,
        context,
        _alone: alone,
    }
}

/// Steps after which a request that has not completed is lost.
const MAX_STEPS: usize = 2_000_000;

impl Pair {
    /// Steps until `count` requests have completed, and retires them.
    pub(crate) fn retire(&mut self, count: usize) -> Vec<Retired> {
        let mut all = Vec::new();
        for _ in 0..MAX_STEPS {
            nic_model::step();
            for completion in self.cq.poll().expect("poll") {
                let qp = if completion.queue() == self.a.id() {
                    &mut self.a
                } else {
                    &mut self.b
                };
                all.push(qp.retire(completion).expect("in flight"));
            }
            if all.len() >= count {
                return all;
            }
        }
        panic!("{} of {count} requests have completed", all.len());
    }

    /// Sends `bytes` from `a` to `b` and returns what arrives.
    pub(crate) fn transfer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut message = self.pd.buf(bytes.len()).expect("buffer");
        message.copy_from_slice(bytes);
        let room = self.pd.buf(4096).expect("buffer");
        self.b.post_recv(wr::recv(room)).expect("receive");
        self.a.post_send(wr::send(message)).expect("send");
        let mut received = Vec::new();
        for retired in self.retire(2) {
            retired.check().expect("success");
            if retired.direction() == ibverbs::Direction::Recv {
                received = retired.into_buf().expect("a buffer").to_vec();
            }
        }
        received
    }

    /// Returns the statuses of the next `count` completions.
    pub(crate) fn statuses(&mut self, count: usize) -> Vec<WcStatus> {
        self.retire(count).iter().map(Retired::status).collect()
    }
}
