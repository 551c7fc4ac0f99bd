//! Queue pairs whose requests name their destination.

use ibverbs::Qkey;
use ibverbs::wr::HeldAddress;

use super::memory::Id;
use super::queue_pair::End;

/// The transport of a queue pair whose requests name their destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatagramKind {
    Ud,
    Srd {
        /// Messages wait until the receiver has a receive.
        waits: bool,
    },
}

/// A queue pair of UD or SRD. Each sends to all others, and to itself.
pub(crate) struct Datagram {
    pub(crate) id: Id,
    /// `None` while a scope or another thread has it.
    pub(crate) end: Option<End>,
    pub(crate) kind: DatagramKind,
    /// No other queue pair has this key, so no message arrives at the next queue pair of the same
    /// number.
    pub(crate) qkey: Qkey,
    /// Messages are sent to the queue pair although it has no receive.
    pub(crate) is_overloaded: bool,
    /// The queue pair is in ERR.
    pub(crate) failed: bool,
    /// The address of the device, which is that of every destination.
    pub(crate) address: Option<HeldAddress>,
    /// An address that was released.
    pub(crate) released: Option<HeldAddress>,
}

impl Datagram {
    pub(crate) fn is_srd(&self) -> bool {
        self.kind != DatagramKind::Ud
    }

    /// Returns `true` if messages wait until the receiver has a receive.
    pub(crate) fn waits(&self) -> bool {
        self.kind == DatagramKind::Srd { waits: true }
    }
}
