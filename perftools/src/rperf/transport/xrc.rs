//! Extended reliable connections. Each line has two: this end sends by one half of the first, and
//! receives by the other half of the second into the shared receive queue of its thread, which the
//! peer names in each message.

use ibverbs::{
    Completion, CompletionQueue, Context, Endpoint, Held, Hold, ProtectionDomain, Qpn, QueueId,
    QueuePair, RcPath, RecvBatch, Retired, SharedReceiveQueue, SrqOptions,
    xrc::{SrqNum, Xrc, XrcDomain, XrcRecvQueuePair, XrcSend},
};
use serde::{Deserialize, Serialize};

use crate::common::error::{Error, Result};

/// What a peer has to know of the end of a line, besides its sending half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XrcReceiver {
    /// The number of the receiving half.
    pub qpn: u32,
    /// The number of the shared receive queue.
    pub srq: u32,
}

/// This end of a line: both halves, and whom it sends to.
#[derive(Debug)]
pub struct XrcConnection {
    /// The half that sends.
    pub sender: QueuePair<XrcSend>,
    receiver: XrcRecvQueuePair,
    /// The shared receive queue of this end.
    srq: SrqNum,
    /// That of the peer.
    pub to: SrqNum,
}

impl XrcConnection {
    /// Joins a sending half with a receiving one, both ready for receives.
    pub(super) fn new(
        mut sender: QueuePair<XrcSend>,
        queue: Option<&SharedRecvQueue>,
        path: &RcPath,
    ) -> Result<Self> {
        let Some(SharedRecvQueue::Xrc(queue, domain)) = queue else {
            return Err(no_queue());
        };
        let mut receiver = domain.create_xrc_recv_qp()?;
        receiver.init(path)?;
        sender.init(path)?;
        let srq = queue.srq_num()?;
        Ok(Self {
            sender,
            receiver,
            srq,
            to: SrqNum(0),
        })
    }

    /// What the peer has to know.
    pub(super) fn receiver(&self) -> XrcReceiver {
        XrcReceiver {
            qpn: self.receiver.qp_num().0,
            srq: self.srq.0,
        }
    }

    /// The number by which what arrives says that it is of this line.
    pub(super) fn arrives_at(&self) -> Qpn {
        self.receiver.qp_num()
    }

    /// Connects each half to the other one of the peer, whose sending half is `sender`.
    pub(super) fn connect(
        &mut self,
        path: &RcPath,
        sender: &Endpoint,
        peer: Option<XrcReceiver>,
    ) -> Result<()> {
        let peer = peer.ok_or_else(|| {
            Error::protocol("the peer's end of an XRC line lacks its receiving half")
        })?;
        let receiver = Endpoint {
            qpn: Qpn(peer.qpn),
            ..*sender
        };
        self.receiver.connect(path, sender)?;
        self.sender.connect(path, &receiver)?;
        self.to = SrqNum(peer.srq);
        Ok(())
    }
}

/// A receive queue that all lines of a thread share.
#[derive(Debug)]
pub enum SharedRecvQueue {
    /// Of queue pairs that were made with it.
    Basic(SharedReceiveQueue),
    /// Of an XRC domain.
    Xrc(SharedReceiveQueue<Xrc>, XrcDomain),
}

/// Does the same with the queue, whatever its kind.
macro_rules! with_queue {
    ($queue:expr, $srq:ident => $body:expr) => {
        match $queue {
            SharedRecvQueue::Basic($srq) => $body,
            SharedRecvQueue::Xrc($srq, _) => $body,
        }
    };
}

impl SharedRecvQueue {
    /// One of an XRC domain of its own, whose receives complete on `cq`.
    pub(super) fn xrc(
        context: &Context,
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        options: SrqOptions,
    ) -> Result<Self> {
        let domain = context.open_xrcd()?;
        let queue = pd.create_xrc_srq(&domain, cq, options)?;
        Ok(Self::Xrc(queue, domain))
    }

    /// Which queue of this process it is.
    #[inline]
    pub(super) fn id(&self) -> QueueId {
        with_queue!(self, srq => srq.id())
    }

    /// Lets it hold memory.
    pub(super) fn hold<M: Hold>(&mut self, memory: &M) -> ibverbs::Result<Held<M>> {
        with_queue!(self, srq => srq.hold(memory))
    }

    /// Takes a receive back; none where it is not in flight.
    #[inline]
    pub(super) fn retire(&mut self, completion: Completion<'_>) -> Option<Retired> {
        with_queue!(self, srq => srq.retire(completion).ok())
    }

    /// Posts receives together.
    pub(super) fn recv_batch(
        &mut self,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> ibverbs::Result<()>,
    ) -> ibverbs::Result<()> {
        with_queue!(self, srq => srq.recv_batch(fill))
    }
}

#[cold]
fn no_queue() -> Error {
    Error::protocol("an XRC line without its shared receive queue")
}
