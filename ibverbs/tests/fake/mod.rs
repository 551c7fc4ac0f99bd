//! Two connected queue pairs on a fake device: what the tests of the data path begin with.

#![allow(dead_code, reason = "each test program uses its part")]

use fake_provider::{Fake, NotReady, Profile};
use ibverbs::{
    AccessFlags, Buf, CompletionQueue, ConnectedDuplexTransport, Context, CqOptions, Device,
    GidIndex, Pool, ProtectionDomain, QpOptions, QueuePair, Rc, RcPath, Retired,
};

/// Both forms of the data path: the extended verbs, and the classic ones with negative error
/// numbers.
pub(crate) const FORMS: [Profile; 2] = [
    Profile::RXE,
    Profile {
        extended_qp: false,
        extended_cq: false,
        negative_errno: true,
        not_ready: NotReady::Wait,
        ..Profile::RXE
    },
];

/// Small queues: Miri is slow.
pub(crate) fn small() -> QpOptions {
    QpOptions {
        max_send_wr: 7,
        max_recv_wr: 7,
        max_inline_data: 32,
        max_batch: 7,
        ..QpOptions::default()
    }
}

pub(crate) fn open(fake: &Fake) -> Context {
    Device::by_name(fake.name())
        .expect("on the list")
        .open()
        .expect("opens")
}

pub(crate) fn path() -> RcPath {
    let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    RcPath {
        access,
        ..RcPath::new(1, GidIndex(0), ibverbs::Mtu::B1024)
    }
}

/// Connects two queue pairs of one device.
pub(crate) fn connect<T: ConnectedDuplexTransport>(a: &mut QueuePair<T>, b: &mut QueuePair<T>) {
    let ends = [&*a, &*b].map(|qp| qp.endpoint(&path()).expect("endpoint"));
    for (qp, peer) in [(a, ends[1]), (b, ends[0])] {
        qp.init(&path()).expect("INIT");
        qp.connect(&path(), &peer).expect("RTS");
    }
}

/// `a` and `b` are connected, share one completion queue, and are dropped before what they stand
/// on.
pub(crate) struct Pair<T: ConnectedDuplexTransport = Rc> {
    pub(crate) a: QueuePair<T>,
    pub(crate) b: QueuePair<T>,
    pub(crate) cq: CompletionQueue,
    pub(crate) pool: Pool,
    pub(crate) pd: ProtectionDomain,
    pub(crate) context: Context,
    pub(crate) fake: Fake,
}

impl Pair {
    pub(crate) fn new(profile: Profile) -> Self {
        Self::of(profile)
    }
}

impl<T: ConnectedDuplexTransport> Pair<T> {
    pub(crate) fn of(profile: Profile) -> Self {
        let fake = Fake::new(profile);
        let context = open(&fake);
        let pd = context.alloc_pd().expect("domain");
        let cq = context
            .create_cq(CqOptions {
                depth: 63,
                extended: profile.extended_cq,
                ..CqOptions::default()
            })
            .expect("completion queue");
        assert_eq!(cq.is_extended(), profile.extended_cq);
        let mut a = pd.create_qp::<T>(&cq, &cq, small()).expect("a");
        let mut b = pd.create_qp::<T>(&cq, &cq, small()).expect("b");
        assert_eq!(a.is_extended(), profile.extended_qp);
        connect(&mut a, &mut b);
        let pool = pd.pool(16, 64).expect("pool");
        Self {
            a,
            b,
            cq,
            pool,
            pd,
            context,
            fake,
        }
    }

    /// A buffer with these bytes.
    pub(crate) fn buf(&self, bytes: &[u8]) -> Buf {
        let mut buf = self.pool.take().expect("a free buffer");
        buf.set_len(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Posts so many receives on `b`.
    pub(crate) fn receives(&mut self, count: usize) {
        for tag in 0..count {
            let buf = self.pool.take().expect("a free buffer");
            self.b
                .post_recv(ibverbs::wr::recv(buf).tag(tag as u64))
                .expect("receive");
        }
    }

    /// Retires all that has completed, in order: what `a` posted, and what `b` did.
    pub(crate) fn retire(&mut self) -> (Vec<Retired>, Vec<Retired>) {
        let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
        loop {
            let before = of_a.len() + of_b.len();
            for completion in self.cq.poll().expect("poll") {
                if completion.queue() == self.a.id() {
                    of_a.push(self.a.retire(completion).expect("in flight"));
                } else {
                    of_b.push(self.b.retire(completion).expect("in flight"));
                }
            }
            if of_a.len() + of_b.len() == before {
                return (of_a, of_b);
            }
        }
    }

    /// Drops all, and checks that the device has nothing left.
    pub(crate) fn finish(self) {
        let Self {
            a,
            b,
            cq,
            pool,
            pd,
            context,
            fake,
        } = self;
        drop((a, b, cq, pool, pd, context));
        fake.assert_clean();
    }
}

/// The bytes that a receive brought.
pub(crate) fn bytes(retired: Retired) -> Vec<u8> {
    retired.ok().expect("success");
    retired.into_buf().expect("posted with a buffer").to_vec()
}
