//! Two connected queue pairs on a fake device, for the tests of the data path.

#![allow(dead_code, reason = "each test program uses its part")]

use std::ops::Deref;
use std::sync::Arc;

use fake_provider::{NotReady, Profile, Provider, SendOrder, Transport};
use ibverbs::{
    AccessFlags, Buf, CompletionQueue, ConnectedDuplexTransport, Context, CqOptions, Device,
    GidIndex, Pool, ProtectionDomain, QpOptions, QueuePair, Rc, RcPath, Retired,
};

/// Devices that follow the IBTA specification, for both data paths: one with the extended verbs
/// (`ibv_wr_*`), and one with `ibv_post_send`, which returns negative error numbers as siw does.
pub(crate) const IN_ORDER: [Profile; 2] = [
    Profile::RXE,
    Profile {
        extended_qp: false,
        extended_cq: false,
        negative_errno: true,
        not_ready: NotReady::Wait,
        ..Profile::RXE
    },
];

/// Devices that complete sends out of order, and that read the memory of unsignaled requests after
/// their completion: READs are late, as with siw, or all completions are reversed.
pub(crate) const OUT_OF_ORDER: [Profile; 2] = [
    Profile {
        transport: Transport::Unspecified,
        send_order: SendOrder::ReadsLate,
        transmits_unsignaled_late: true,
        ..IN_ORDER[1]
    },
    Profile {
        transport: Transport::Unspecified,
        send_order: SendOrder::Reversed,
        transmits_unsignaled_late: true,
        ..IN_ORDER[0]
    },
];

/// The devices that a test of the data path runs on. A test of what only the order of completions
/// permits runs on [`IN_ORDER`].
pub(crate) const PROFILES: [Profile; 3] = [IN_ORDER[0], IN_ORDER[1], OUT_OF_ORDER[0]];

/// Returns `true` if the sends of a device complete in the order of posting.
pub(crate) fn in_order(profile: &Profile) -> bool {
    profile.send_order == SendOrder::InOrder
}

/// Returns options for small queues, because Miri is slow.
pub(crate) fn small() -> QpOptions {
    QpOptions::new()
        .max_send_wr(7)
        .max_recv_wr(7)
        .max_inline_data(32)
        .max_batch(7)
}

/// A fake device. Dropping it checks that the test has left no object of it, so declare it before
/// all of them.
pub(crate) struct Fake(fake_provider::Fake);

impl Fake {
    pub(crate) fn new(profile: Profile) -> Self {
        Self(fake_provider::Fake::new(profile))
    }

    /// Returns a device with the extended verbs, similar to Soft-RoCE.
    pub(crate) fn extended() -> Self {
        Self::new(Profile::RXE)
    }

    /// Returns a device with only the classic verbs, similar to Soft-iWARP.
    pub(crate) fn classic() -> Self {
        Self::new(Profile::SIW)
    }
}

impl Deref for Fake {
    type Target = fake_provider::Fake;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if !crate::LEAKS && !std::thread::panicking() {
            self.assert_clean();
        }
    }
}

/// Opens the fake device.
pub(crate) fn open(fake: &fake_provider::Fake) -> Context {
    Device::by_name(fake.name())
        .expect("listed device")
        .open()
        .expect("open device")
}

/// Opens the fake device, and creates the parents of queue pairs.
pub(crate) fn parents(fake: &fake_provider::Fake) -> (Context, ProtectionDomain, CompletionQueue) {
    let context = open(fake);
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context.create_cq(CqOptions::default());
    let cq = cq.expect("completion queue");
    (context, pd, cq)
}

/// Returns a path between queue pairs of one device, with all remote access rights.
pub(crate) fn path() -> RcPath {
    let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    RcPath::new(1, GidIndex(0), ibverbs::Mtu::B1024).access(access)
}

/// Connects two queue pairs of one device.
pub(crate) fn connect<T: ConnectedDuplexTransport>(a: &mut QueuePair<T>, b: &mut QueuePair<T>) {
    let endpoints = [&*a, &*b].map(|qp| qp.endpoint(&path()).expect("endpoint"));
    for (qp, peer) in [(a, endpoints[1]), (b, endpoints[0])] {
        qp.init(&path()).expect("INIT state");
        qp.connect(&path(), &peer).expect("RTS state");
    }
}

/// Connects two RC queue pairs of each device.
pub(crate) fn pairs(profiles: impl IntoIterator<Item = Profile>) -> impl Iterator<Item = Pair> {
    profiles.into_iter().map(Pair::new)
}

/// Two connected queue pairs that share a completion queue, with their parents.
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
    /// Connects two RC queue pairs.
    pub(crate) fn new(profile: Profile) -> Self {
        Self::with_transport(profile)
    }
}

impl<T: ConnectedDuplexTransport> Pair<T> {
    /// Connects two queue pairs of transport `T`.
    pub(crate) fn with_transport(profile: Profile) -> Self {
        let fake = Fake::new(profile);
        let context = open(&fake);
        let pd = context.alloc_pd().expect("protection domain");
        let cq = context
            .create_cq(CqOptions::new().depth(63))
            .expect("completion queue");
        // Only devices with more verbs have memory of their own.
        let options = small().device_addresses(profile.more_verbs);
        let mut a = pd.create_qp::<T>(&cq, &cq, options).expect("a");
        let mut b = pd.create_qp::<T>(&cq, &cq, options).expect("b");
        let avoided = matches!(profile.provider, Provider::BnxtRe | Provider::Unknown);
        assert_eq!(a.is_extended(), profile.extended_qp && !avoided);
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

    /// Takes a buffer from the pool and fills it with `bytes`.
    pub(crate) fn buf(&self, bytes: &[u8]) -> Buf {
        let mut buf = self.pool.take().expect("a free buffer");
        buf.set_len(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Posts `count` receives with tags from 0 on `b`.
    pub(crate) fn post_recvs(&mut self, count: usize) {
        for tag in 0..count {
            let buf = self.pool.take().expect("a free buffer");
            self.b
                .post_recv(ibverbs::wr::recv(buf).tag(tag as u64))
                .expect("receive");
        }
    }

    /// Retires all completed requests and returns those of `a` and those of `b`, in order.
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
}

/// Returns one of the orders of the numbers `0..count`: of 720 for six numbers.
pub(crate) fn order_of(count: usize, mut index: usize) -> Vec<usize> {
    let mut order = Vec::new();
    for number in 0..count {
        let places = order.len() + 1;
        order.insert(index % places, number);
        index /= places;
    }
    order
}

/// Returns the bytes of a successful request's buffer.
pub(crate) fn buf_bytes(retired: Retired) -> Vec<u8> {
    retired.check().expect("success");
    retired.into_buf().expect("posted with a buffer").to_vec()
}

/// A value that reports when it is dropped.
#[derive(Debug)]
pub(crate) struct Owner(pub(crate) Vec<u8>, pub(crate) Arc<()>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The same with writable bytes, in whole words: Miri does not align a vector of bytes.
pub(crate) struct Words(pub(crate) Box<Aligned>, pub(crate) Arc<()>);

#[repr(align(8))]
pub(crate) struct Aligned(pub(crate) [u8; 64]);

impl AsMut<[u8]> for Words {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0.0
    }
}
