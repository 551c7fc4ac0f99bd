//! An XRC connection with two shared receive queues on the fake device.

use fake_provider::Profile;
use ibverbs::{
    Buf, CompletionQueue, Context, CqOptions, Pool, ProtectionDomain, QueuePair, RcPath, Retired,
    SharedReceiveQueue, SharedRegion, SrqOptions, WcStatus, wr,
    xrc::{SrqNum, Xrc, XrcDomain, XrcRecvQueuePair, XrcSend},
};

use crate::fixture::{self, Fake, open, path, small};

/// A shared receive queue of an XRC domain, with its own protection domain and completion queue, as
/// in a separate process.
pub(crate) struct TargetSrq {
    pub(crate) srq: SharedReceiveQueue<Xrc>,
    pub(crate) srq_num: SrqNum,
    pub(crate) cq: CompletionQueue,
    pub(crate) pool: Pool,
    pub(crate) pd: ProtectionDomain,
}

impl TargetSrq {
    pub(crate) fn new(context: &Context, xrcd: &XrcDomain) -> Self {
        let pd = context.alloc_pd().expect("protection domain");
        let cq = context
            .create_cq(CqOptions::new().depth(31))
            .expect("completion queue");
        let options = SrqOptions::new().max_wr(7).max_sge(2).max_batch(7);
        let srq = pd
            .create_xrc_srq(xrcd, &cq, options)
            .expect("shared receive queue");
        let srq_num = srq.srq_num().expect("SRQ number");
        let pool = pd.pool(8, 64).expect("pool");
        Self {
            srq,
            srq_num,
            cq,
            pool,
            pd,
        }
    }

    /// Posts `count` receives with tags from 0.
    pub(crate) fn post_recvs(&mut self, count: u64) {
        for tag in 0..count {
            self.srq
                .post_recv(wr::recv(self.pool.take().expect("a free buffer")).tag(tag))
                .expect("a free slot");
        }
    }

    /// Retires all completed receives.
    pub(crate) fn retire(&mut self) -> Vec<Retired> {
        let completions = self.cq.poll().expect("poll");
        completions
            .map(|completion| self.srq.retire(completion).expect("in flight"))
            .collect()
    }

    /// Retires all completed receives. Returns their tags and bytes.
    pub(crate) fn messages(&mut self) -> Vec<(u64, Vec<u8>)> {
        let all = self.retire();
        all.into_iter()
            .map(|retired| (retired.tag(), fixture::buf_bytes(retired)))
            .collect()
    }
}

/// An XRC connection whose receiving side has two shared receive queues.
pub(crate) struct Setup {
    pub(crate) sender: QueuePair<XrcSend>,
    pub(crate) send_cq: CompletionQueue,
    pub(crate) pool: Pool,
    pub(crate) receiver: XrcRecvQueuePair,
    pub(crate) srqs: [TargetSrq; 2],
    pub(crate) xrcd: XrcDomain,
    pub(crate) context: Context,
    pub(crate) fake: Fake,
}

/// Connects an XRC send queue pair and an XRC receive queue pair.
pub(crate) fn connect(
    sender: &mut QueuePair<XrcSend>,
    receiver: &mut XrcRecvQueuePair,
    path: &RcPath,
) {
    let (send_endpoint, recv_endpoint) = (
        sender.endpoint(path).expect("endpoint"),
        receiver.endpoint(path).expect("endpoint"),
    );
    sender.init(path).expect("INIT state");
    receiver.init(path).expect("INIT state");
    receiver.connect(path, &send_endpoint).expect("RTS state");
    sender.connect(path, &recv_endpoint).expect("RTS state");
}

/// Creates a fake device that supports XRC.
pub(crate) fn with_xrc(profile: Profile) -> Fake {
    Fake::new(Profile {
        more_verbs: true,
        ..profile
    })
}

impl Setup {
    /// Creates the objects and connects them.
    pub(crate) fn new(profile: Profile) -> Self {
        let fake = with_xrc(profile);
        let context = open(&fake);
        let xrcd = context.open_xrcd().expect("XRC domain");
        let srqs = [(); 2].map(|()| TargetSrq::new(&context, &xrcd));
        let mut receiver = xrcd.create_xrc_recv_qp().expect("XRC receive queue pair");
        let pd = context.alloc_pd().expect("protection domain");
        let send_cq = context
            .create_cq(CqOptions::new().depth(31))
            .expect("completion queue");
        let mut sender = pd
            .create_xrc_send_qp(&send_cq, small())
            .expect("XRC send queue pair");
        assert_eq!(
            (sender.is_extended(), sender.caps().max_recv_wr),
            (profile.extended_qp, 0)
        );
        connect(&mut sender, &mut receiver, &path());
        let pool = pd.pool(8, 64).expect("pool");
        Self {
            sender,
            send_cq,
            pool,
            receiver,
            srqs,
            xrcd,
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

    /// Retires all completed sends. Returns their statuses.
    pub(crate) fn send_statuses(&mut self) -> Vec<WcStatus> {
        let completions = self.send_cq.poll().expect("poll");
        completions
            .map(|completion| self.sender.retire(completion).expect("in flight").status())
            .collect()
    }

    /// Registers a region that contains `value`, in the protection domain of a shared receive
    /// queue.
    pub(crate) fn region(&self, srq: usize, value: u64) -> SharedRegion {
        let region = self.srqs[srq].pd.shared(8, path().access).expect("region");
        region.write(0, &value.to_ne_bytes()).expect("in range");
        region
    }
}
