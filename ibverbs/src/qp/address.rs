//! Whom a datagram queue pair sends to: addresses that it holds, by tokens.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use rdma_sys::ibv_ah;

use crate::ah::AddressHandle;
use crate::gid::Gid;
use crate::identity::{Qkey, Qpn, QueueId};
use crate::port::Lid;

/// A token for an address handle that a queue pair holds; `Copy`, for the queue pair that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldAddress {
    pub(super) ah: NonNull<ibv_ah>,
    pub(super) queue: QueueId,
    pub(super) epoch: u32,
}

// SAFETY: the pointer is followed only by the queue pair that keeps the handle alive, which `is_valid` checks.
unsafe impl Send for HeldAddress {}
// SAFETY: as above.
unsafe impl Sync for HeldAddress {}

impl HeldAddress {
    #[inline]
    pub(super) fn as_ptr(self) -> *mut ibv_ah {
        self.ah.as_ptr()
    }

    #[inline]
    pub(super) fn is_valid(self, queue: QueueId, epoch: u32) -> bool {
        self.queue == queue && self.epoch == epoch
    }
}

/// Where a datagram goes: the port, the queue pair there, and the key it must know.
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
pub(super) struct Addresses {
    pub(super) handles: Vec<AddressHandle>,
    /// What is attached to.
    pub(super) groups: Vec<(Gid, Lid)>,
    /// Counts the releases, so that tokens from before one are refused.
    pub(super) epoch: u32,
}
