//! Extended reliable connections (XRC).
//!
//! An XRC connection transfers data in one direction, from an initiator queue pair to a target
//! queue pair. Each [`XrcConnection`] has two: this end sends on the first and receives on the
//! second. Messages name the shared receive queue that they go to, which all connections of a
//! thread use.

use base::error::{Error, Result};
use ibverbs::{
    Completion, CompletionQueue, Context, Endpoint, Held, Hold, ProtectionDomain, Qpn, QueueId,
    QueuePair, RcPath, RecvBatch, Retired, SharedReceiveQueue, SrqOptions,
    xrc::{SrqNum, Xrc, XrcDomain, XrcRecvQueuePair, XrcSend},
};
use serde::{Deserialize, Serialize};

/// The receiving half of an end, as sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XrcReceiver {
    /// Queue pair number of the receiving half.
    pub qpn: u32,
    /// Number of the shared receive queue.
    pub srq: u32,
}

/// This end of a pair of XRC connections, one in each direction.
#[derive(Debug)]
pub struct XrcConnection {
    /// The sending half.
    pub sender: QueuePair<XrcSend>,
    receiver: XrcRecvQueuePair,
    /// Shared receive queue of this end.
    srq: SrqNum,
    /// Shared receive queue of the peer.
    pub peer_srq: SrqNum,
}

impl XrcConnection {
    /// Creates the receiving half for a sending half, and moves both to the INIT state.
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
            peer_srq: SrqNum(0),
        })
    }

    /// Returns the receiving half, as sent to the peer.
    pub(super) fn receiver(&self) -> XrcReceiver {
        XrcReceiver {
            qpn: self.receiver.qp_num().0,
            srq: self.srq.0,
        }
    }

    /// Returns the queue pair number in the completions of receives.
    pub(super) fn recv_qpn(&self) -> Qpn {
        self.receiver.qp_num()
    }

    /// Connects each half to the opposite half of the peer, whose sending half is `sender`.
    pub(super) fn connect(
        &mut self,
        path: &RcPath,
        sender: &Endpoint,
        peer: Option<XrcReceiver>,
    ) -> Result<()> {
        let peer = peer.ok_or_else(|| {
            Error::protocol("the peer sent no receiving half of an XRC connection")
        })?;
        let receiver = Endpoint {
            qpn: Qpn(peer.qpn),
            ..*sender
        };
        self.receiver.connect(path, sender)?;
        self.sender.connect(path, &receiver)?;
        self.peer_srq = SrqNum(peer.srq);
        Ok(())
    }
}

/// A receive queue that all queue pairs of a thread share.
#[derive(Debug)]
pub enum SharedRecvQueue {
    /// A basic shared receive queue, of queue pairs created with it.
    Basic(SharedReceiveQueue),
    /// The shared receive queue of an XRC domain.
    Xrc(SharedReceiveQueue<Xrc>, XrcDomain),
}

/// Evaluates an expression with a shared receive queue of either kind.
macro_rules! with_queue {
    ($queue:expr, $srq:ident => $body:expr) => {
        match $queue {
            SharedRecvQueue::Basic($srq) => $body,
            SharedRecvQueue::Xrc($srq, _) => $body,
        }
    };
}

impl SharedRecvQueue {
    /// Creates an XRC domain with a shared receive queue whose receives complete on `cq`.
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

    /// Returns the ID of the queue within this process.
    #[inline]
    pub(super) fn id(&self) -> QueueId {
        with_queue!(self, srq => srq.id())
    }

    /// Adds memory to the objects that the queue keeps alive.
    pub(super) fn hold<M: Hold>(&mut self, memory: &M) -> ibverbs::Result<Held<M>> {
        with_queue!(self, srq => srq.hold(memory))
    }

    /// Retires a receive; returns `None` if it is not in flight.
    #[inline]
    pub(super) fn retire(&mut self, completion: Completion<'_>) -> Option<Retired> {
        with_queue!(self, srq => srq.retire(completion).ok())
    }

    /// Posts a batch of receives.
    pub(super) fn recv_batch(
        &mut self,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> ibverbs::Result<()>,
    ) -> ibverbs::Result<()> {
        with_queue!(self, srq => srq.recv_batch(fill))
    }
}

#[cold]
fn no_queue() -> Error {
    Error::protocol("an XRC connection has no shared receive queue")
}
