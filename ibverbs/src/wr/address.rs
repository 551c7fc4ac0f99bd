//! Destinations of datagrams: address handles that the queue pair holds.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use rdma_sys::ibv_ah;

use crate::ah::AddressHandle;
use crate::gid::Gid;
use crate::identity::QueueId;
use crate::numbers::{Qkey, Qpn};
use crate::port::Lid;

/// A token for an address handle that a queue pair holds. It is valid for that queue pair only.
///
/// # Example
/// ```no_run
/// use ibverbs::{
///     AddressHandle, HeldAddress, Qkey, Qpn, QueuePair, Ud,
///     wr::{self, Destination},
/// };
/// # fn f(qp: &mut QueuePair<Ud>, group: &AddressHandle) -> ibverbs::Result<()> {
/// let address: HeldAddress = qp.hold_address(group)?; // held once, used many times
/// let destination = Destination {
///     address,
///     qpn: Qpn::MULTICAST,
///     qkey: Qkey(0x1111_1111),
/// };
/// for line in ["one", "two"] {
///     qp.post_send(wr::send(wr::Inline(line.as_bytes())).to(destination))?;
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_create_ah")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldAddress {
    pub(crate) ah: NonNull<ibv_ah>,
    pub(crate) queue: QueueId,
    pub(crate) epoch: u64,
}

// SAFETY: only the queue pair that keeps the handle alive dereferences the pointer, after
// `is_valid`.
unsafe impl Send for HeldAddress {}
// SAFETY: `&HeldAddress` gives access to a plain value.
unsafe impl Sync for HeldAddress {}

impl HeldAddress {
    #[inline]
    pub(crate) fn as_ptr(self) -> *mut ibv_ah {
        self.ah.as_ptr()
    }

    #[inline]
    pub(crate) fn is_valid(self, queue: QueueId, epoch: u64) -> bool {
        self.queue == queue && self.epoch == epoch
    }
}

/// The destination of a datagram: a port, a queue pair there and its queue key.
///
/// # Example
/// ```no_run
/// use ibverbs::{HeldAddress, Qkey, Qpn, QueuePair, Ud, wr::{self, Destination}};
/// # fn f(qp: &mut QueuePair<Ud>, address: HeldAddress, peer_qpn: Qpn) -> ibverbs::Result<()> {
/// let destination = Destination { address, qpn: peer_qpn, qkey: Qkey(0x1111_1111) };
/// qp.post_send(wr::send(wr::Inline(b"hello")).to(destination))?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_post_send")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Address of the port, held by the sending queue pair.
    pub address: HeldAddress,
    /// Number of the receiving queue pair, or [`Qpn::MULTICAST`] for a multicast group.
    pub qpn: Qpn,
    /// Queue key of the receiving queue pair.
    pub qkey: Qkey,
}

/// The address handles that a datagram queue pair keeps alive, and its multicast groups.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) handles: Vec<AddressHandle>,
    /// Attached multicast groups.
    pub(crate) groups: Vec<(Gid, Lid)>,
    /// Number of releases. Tokens from before a release are rejected. 64 bits never wrap around.
    pub(crate) epoch: u64,
}
