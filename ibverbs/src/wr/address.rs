//! Whom a datagram queue pair sends to: addresses that it holds, by tokens.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use rdma_sys::ibv_ah;

use crate::ah::AddressHandle;
use crate::gid::Gid;
use crate::identity::QueueId;
use crate::numbers::{Qkey, Qpn};
use crate::port::Lid;

/// A token for an address handle that a queue pair holds; `Copy`, for the queue pair that gave it.
///
/// # Example
/// ```no_run
/// use ibverbs::{
///     AddressHandle, HeldAddress, Qkey, Qpn, QueuePair, Ud,
///     wr::{self, Destination},
/// };
/// # fn f(qp: &mut QueuePair<Ud>, group: &AddressHandle) -> ibverbs::Result<()> {
/// let address: HeldAddress = qp.hold_address(group)?; // once
/// let destination = Destination {
///     address,
///     qpn: Qpn::MULTICAST,
///     qkey: Qkey(0x1111_1111),
/// };
/// for line in ["one", "two"] {
///     qp.post_send(wr::send_to(wr::Inline(line.as_bytes()), destination))?;
/// }
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_create_ah(3)`](https://man7.org/linux/man-pages/man3/ibv_create_ah.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldAddress {
    pub(crate) ah: NonNull<ibv_ah>,
    pub(crate) queue: QueueId,
    pub(crate) epoch: u64,
}

// SAFETY: the pointer is followed only by the queue pair that keeps the handle alive, which
// `is_valid` checks.
unsafe impl Send for HeldAddress {}
// SAFETY: as above.
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

/// Where a datagram goes: the port, the queue pair there, and the key it must know.
///
/// # Example
/// ```no_run
/// use ibverbs::{HeldAddress, Qkey, Qpn, QueuePair, Ud, wr::{self, Destination}};
/// # fn f(qp: &mut QueuePair<Ud>, address: HeldAddress, qpn_of_the_peer: Qpn) -> ibverbs::Result<()> {
/// let destination = Destination { address, qpn: qpn_of_the_peer, qkey: Qkey(0x1111_1111) };
/// qp.post_send(wr::send_to(wr::Inline(b"hello"), destination))?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The port's address, held by the sending queue pair.
    pub address: HeldAddress,
    /// The queue pair at the port; [`Qpn::MULTICAST`] for a group.
    pub qpn: Qpn,
    /// The key that the receiving queue pair was started with.
    pub qkey: Qkey,
}

/// The address handles that a datagram queue pair keeps alive, and the groups it listens to.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) handles: Vec<AddressHandle>,
    /// What is attached to.
    pub(crate) groups: Vec<(Gid, Lid)>,
    /// Counts the releases, so that tokens from before one are refused. It is wide enough to come
    /// to no number again.
    pub(crate) epoch: u64,
}
