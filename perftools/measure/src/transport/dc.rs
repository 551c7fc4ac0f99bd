//! Dynamically connected transport (DC).
//!
//! Each [`DcConnection`] has an initiator, which sends to the targets of the peer in turn, and as
//! many targets, which receive from the shared receive queue of the thread.

use base::error::{Error, Result};
use base::system::random;
use ibverbs::{
    CompletionQueue, HeldAddress, ProtectionDomain, Qpn, QueuePair, RcPath,
    dc::{Dc, DcDestination, DcKey, DcTarget},
};
use serde::{Deserialize, Serialize};

use super::xrc::SharedRecvQueue;

/// A target of an end, as sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DcReceiver {
    /// Queue pair number of the target.
    pub qpn: u32,
    /// Access key of the target.
    pub key: u64,
}

/// An initiator and its targets before the peer is known.
#[derive(Debug)]
pub struct UnconnectedDc {
    pub(super) initiator: QueuePair<Dc>,
    targets: Vec<(DcTarget, DcReceiver)>,
}

/// This end of a test over DC: an initiator and targets.
#[derive(Debug)]
pub struct DcConnection {
    /// The initiator, which sends.
    pub initiator: QueuePair<Dc>,
    targets: Vec<(DcTarget, DcReceiver)>,
    /// Targets of the peer.
    peers: Vec<DcDestination>,
    /// Index of the target of the next requests.
    next: usize,
}

impl UnconnectedDc {
    /// Creates `count` targets for an initiator, and starts them, so that the device assigns their
    /// numbers.
    pub(super) fn new(
        initiator: QueuePair<Dc>,
        count: u32,
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        queue: Option<&SharedRecvQueue>,
        path: &RcPath,
    ) -> Result<Self> {
        let Some(SharedRecvQueue::Basic(queue)) = queue else {
            return Err(Error::protocol("a DC target has no shared receive queue"));
        };
        let create = |_| {
            let key = random();
            let mut target = pd.create_dc_target(cq, queue, DcKey(key))?;
            target.start(path)?;
            let qpn = target.qp_num().0;
            Ok((target, DcReceiver { qpn, key }))
        };
        let targets = (0..count).map(create).collect::<Result<_>>()?;
        Ok(Self { initiator, targets })
    }

    /// Returns the targets, as sent to the peer.
    pub(super) fn receivers(&self) -> Vec<DcReceiver> {
        self.targets.iter().map(|(_, receiver)| *receiver).collect()
    }

    /// Starts the initiator. Its requests go to targets at the address that `hold` returns for the
    /// initiator.
    pub(super) fn connect(
        self,
        path: &RcPath,
        peers: &[DcReceiver],
        hold: impl FnOnce(&mut QueuePair<Dc>) -> ibverbs::Result<HeldAddress>,
    ) -> Result<DcConnection> {
        let Self {
            mut initiator,
            targets,
        } = self;
        if peers.len() != targets.len() {
            let (sent, expected) = (peers.len(), targets.len());
            let text = format!("the peer sent {sent} DC targets instead of {expected}");
            return Err(Error::protocol(text));
        }
        initiator.start(path)?;
        let address = hold(&mut initiator)?;
        let peers = peers.iter().map(|peer| DcDestination {
            address,
            qpn: Qpn(peer.qpn),
            key: DcKey(peer.key),
        });
        Ok(DcConnection {
            initiator,
            targets,
            peers: peers.collect(),
            next: 0,
        })
    }
}

impl DcConnection {
    /// Returns the queue pair numbers in the completions of receives.
    pub(super) fn recv_qpns(&self) -> Vec<Qpn> {
        self.targets
            .iter()
            .map(|(target, _)| target.qp_num())
            .collect()
    }

    /// Returns the target of the next requests.
    #[inline]
    pub(super) fn peer(&self) -> DcDestination {
        self.peers[self.next]
    }

    /// Selects the next target.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.next += 1;
        if self.next == self.peers.len() {
            self.next = 0;
        }
    }
}
