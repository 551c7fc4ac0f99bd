//! Connected queue pairs whose sends complete on queues of their own.

use ibverbs::{
    AccessFlags, CompletionQueue, ConnectedDuplexTransport, Context, CqOptions, Error, Held,
    ProtectionDomain, QpOptions, QueuePair, RemoteMemory, Retired, SharedRegion, wr,
};

use crate::lab::{connect, path, until};

pub(crate) const ACCESS: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);
/// Size of the queues, small so that they wrap around often.
const SENDS: u32 = 16;

/// A queue pair whose sends complete on a queue of their own.
pub(crate) struct End<T: ConnectedDuplexTransport> {
    pub(crate) sends: CompletionQueue,
    pub(crate) receives: CompletionQueue,
    pub(crate) qp: QueuePair<T>,
    pub(crate) region: SharedRegion,
    pub(crate) held: Held<SharedRegion>,
}

impl<T: ConnectedDuplexTransport> End<T> {
    pub(crate) fn new(pd: &ProtectionDomain) -> Self {
        Self::with(pd, |sends, receives, options| {
            pd.create_qp::<T>(sends, receives, options)
        })
    }

    pub(crate) fn with(
        pd: &ProtectionDomain,
        create: impl FnOnce(
            &CompletionQueue,
            &CompletionQueue,
            QpOptions,
        ) -> Result<QueuePair<T>, Error>,
    ) -> Self {
        let queue = || {
            let options = CqOptions::new().depth(64);
            pd.context().create_cq(options).expect("completion queue")
        };
        let (sends, receives) = (queue(), queue());
        let options = QpOptions::new().max_send_wr(SENDS).max_recv_wr(SENDS);
        let options = options.max_inline_data(96);
        let mut qp = create(&sends, &receives, options).expect("queue pair");
        let region = pd.shared(4096, ACCESS).expect("region");
        let held = qp.hold(&region).expect("held");
        Self {
            sends,
            receives,
            qp,
            region,
            held,
        }
    }

    pub(crate) fn remote(&self) -> RemoteMemory {
        self.region.remote()
    }

    /// Retires `count` sends.
    pub(crate) fn retire(&mut self, count: usize) -> Vec<Retired> {
        let mut all = Vec::new();
        until("the completions", || {
            for completion in self.sends.poll().expect("poll") {
                all.push(self.qp.retire(completion).expect("in flight"));
            }
            all.len() >= count
        });
        all
    }

    /// Waits for the next message, and returns its bytes.
    pub(crate) fn receive(&mut self) -> Vec<u8> {
        let mut message = None;
        until("the message", || {
            if let Some(completion) = self.receives.poll().expect("poll").next() {
                let received = self.qp.retire(completion).expect("in flight");
                received.check().expect("success");
                let len = received.received_len();
                message = received.into_buf().map(|buf| buf[..len].to_vec());
            }
            message.is_some()
        });
        message.expect("set above")
    }

    pub(crate) fn post_receive(&mut self) {
        let buf = self.qp.pd().buf(128).expect("buffer");
        self.qp.post_recv(wr::recv(buf)).expect("receive");
    }

    /// Sends a message to `to` with the safe verbs.
    pub(crate) fn send(&mut self, to: &mut Self, message: &[u8]) {
        to.post_receive();
        let mut buf = self.qp.pd().buf(message.len()).expect("buffer");
        buf.copy_from_slice(message);
        self.qp.post_send(wr::send(buf)).expect("send");
        assert_eq!(to.receive(), message);
        self.retire(1).remove(0).check().expect("success");
    }
}

pub(crate) fn ends<T: ConnectedDuplexTransport>(context: &Context) -> [End<T>; 2] {
    let pd = context.alloc_pd().expect("protection domain");
    let mut ends = [End::new(&pd), End::new(&pd)];
    let [a, b] = &mut ends;
    let path = path(context).timeout(14).retry_cnt(3).access(ACCESS);
    connect(&mut a.qp, &mut b.qp, &path);
    ends
}
