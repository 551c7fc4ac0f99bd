//! Enhanced connection establishment options of an identifier.

#![allow(unsafe_code)]

use std::fmt;

use ibverbs::Result;
use rdma_sys::{ibv_ece, rdma_get_remote_ece, rdma_set_local_ece};

use crate::convert::zero_or_last;
use crate::id::Id;
use crate::params::Ece;

impl Id {
    /// Sets the options that this side sends with its request or acceptance.
    pub(crate) fn set_local_ece(&self, ece: Ece, detail: &dyn fmt::Display) -> Result<()> {
        let mut raw = ibv_ece {
            vendor_id: ece.vendor_id,
            options: ece.options,
            comp_mask: 0,
        };
        // SAFETY: `self` keeps the identifier alive, and the structure is valid during the call.
        let returned = unsafe { rdma_set_local_ece(self.as_ptr(), &raw mut raw) };
        zero_or_last("rdma_set_local_ece", detail, returned)
    }

    /// Returns the options that the peer sent; all zeros if there were none.
    pub(crate) fn remote_ece(&self, detail: &dyn fmt::Display) -> Result<Ece> {
        let mut raw = ibv_ece::default();
        // SAFETY: `self` keeps the identifier alive, nothing changes it meanwhile, and the
        // structure is valid for writing.
        let returned = self.exclusively(|id| unsafe { rdma_get_remote_ece(id, &raw mut raw) });
        zero_or_last("rdma_get_remote_ece", detail, returned)?;
        Ok(Ece {
            vendor_id: raw.vendor_id,
            options: raw.options,
        })
    }
}
