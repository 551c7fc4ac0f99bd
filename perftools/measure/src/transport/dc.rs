//! Dynamically connected transport (DC).
//!
//! Each [`DcConnection`] has an initiator, which sends to the target of the peer, and a target,
//! which receives from the shared receive queue of the thread.

use base::error::{Error, Result};
use base::system::random;
use ibverbs::{
    CompletionQueue, HeldAddress, ProtectionDomain, Qpn, QueuePair, RcPath,
    dc::{Dc, DcDestination, DcKey, DcTarget},
};
use serde::{Deserialize, Serialize};

use super::xrc::SharedRecvQueue;

/// The target of an end, as sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DcReceiver {
    /// Queue pair number of the target.
    pub qpn: u32,
    /// Access key of the target.
    pub key: u64,
}

/// An initiator and a target before the peer is known.
#[derive(Debug)]
pub struct UnconnectedDc {
    pub(super) initiator: QueuePair<Dc>,
    target: DcTarget,
    key: u64,
}

/// This end of a test over DC: an initiator and a target.
#[derive(Debug)]
pub struct DcConnection {
    /// The initiator, which sends.
    pub initiator: QueuePair<Dc>,
    target: DcTarget,
    /// Target of the peer.
    pub peer: DcDestination,
}

impl UnconnectedDc {
    /// Creates the target for an initiator, and starts it, so that the device assigns its number.
    pub(super) fn new(
        initiator: QueuePair<Dc>,
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        queue: Option<&SharedRecvQueue>,
        path: &RcPath,
    ) -> Result<Self> {
        let Some(SharedRecvQueue::Basic(queue)) = queue else {
            return Err(Error::protocol("a DC target has no shared receive queue"));
        };
        let key = random();
        let mut target = pd.create_dc_target(cq, queue, DcKey(key))?;
        target.start(path)?;
        Ok(Self {
            initiator,
            target,
            key,
        })
    }

    /// Returns the target, as sent to the peer.
    pub(super) fn receiver(&self) -> DcReceiver {
        DcReceiver {
            qpn: self.target.qp_num().0,
            key: self.key,
        }
    }

    /// Starts the initiator. Its requests go to a target at `address`, which `hold` returns for the
    /// initiator.
    pub(super) fn connect(
        self,
        path: &RcPath,
        peer: Option<DcReceiver>,
        hold: impl FnOnce(&mut QueuePair<Dc>) -> ibverbs::Result<HeldAddress>,
    ) -> Result<DcConnection> {
        let peer = peer.ok_or_else(|| Error::protocol("the peer sent no DC target"))?;
        let Self {
            mut initiator,
            target,
            ..
        } = self;
        initiator.start(path)?;
        let peer = DcDestination {
            address: hold(&mut initiator)?,
            qpn: Qpn(peer.qpn),
            key: DcKey(peer.key),
        };
        Ok(DcConnection {
            initiator,
            target,
            peer,
        })
    }
}

impl DcConnection {
    /// Returns the queue pair number in the completions of receives.
    pub(super) fn recv_qpn(&self) -> Qpn {
        self.target.qp_num()
    }
}
