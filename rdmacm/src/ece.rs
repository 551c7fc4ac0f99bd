//! Enhanced connection establishment: what the vendors' drivers of both ends tell each other.

#![allow(unsafe_code)]

use std::fmt;

use ibverbs::Result;
use rdma_sys::{ibv_ece, rdma_get_remote_ece, rdma_set_local_ece};

use crate::error::zero_or_last;
use crate::id::Id;

/// Options of enhanced connection establishment (`struct ibv_ece`): a vendor and bits whose meaning is the vendor's.
///
/// They travel in the messages of the handshake on InfiniBand and RoCE. What a provider makes of them is asked of the queue pair
/// (`ibv_query_ece`, `ibv_set_ece`, reachable through [`AsRaw`](ibverbs::AsRaw)); Soft-RoCE and Soft-iWARP have none.
///
/// # References
/// [`rdma_set_local_ece(3)`](https://man7.org/linux/man-pages/man3/rdma_set_local_ece.3.html),
/// [`rdma_get_remote_ece(3)`](https://man7.org/linux/man-pages/man3/rdma_get_remote_ece.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ece {
    /// Whose options they are; 0 for none.
    pub vendor_id: u32,
    /// The options.
    pub options: u32,
}

impl Id {
    /// What this side offers in its request or its acceptance.
    pub(crate) fn set_local_ece(&self, ece: Ece, what: &dyn fmt::Display) -> Result<()> {
        let mut raw = ibv_ece { vendor_id: ece.vendor_id, options: ece.options, comp_mask: 0 };
        // SAFETY: the identifier is alive and the structure valid during the call.
        let returned = unsafe { rdma_set_local_ece(self.as_ptr(), &raw mut raw) };
        zero_or_last("rdma_set_local_ece", what, returned)
    }

    /// What the peer offered; all zeros when nothing.
    pub(crate) fn remote_ece(&self, what: &dyn fmt::Display) -> Result<Ece> {
        let mut raw = ibv_ece::default();
        // SAFETY: the identifier is alive and the structure valid for writing.
        let returned = unsafe { rdma_get_remote_ece(self.as_ptr(), &raw mut raw) };
        zero_or_last("rdma_get_remote_ece", what, returned)?;
        Ok(Ece { vendor_id: raw.vendor_id, options: raw.options })
    }
}
