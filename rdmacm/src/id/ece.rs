//! The drivers' options of an identifier.

#![allow(unsafe_code)]

use std::fmt;

use ibverbs::Result;
use rdma_sys::{ibv_ece, rdma_get_remote_ece, rdma_set_local_ece};

use crate::convert::zero_or_last;
use crate::id::Id;
use crate::params::Ece;

impl Id {
    /// What this side offers in its request or its acceptance.
    pub(crate) fn set_local_ece(&self, ece: Ece, what: &dyn fmt::Display) -> Result<()> {
        let mut raw = ibv_ece {
            vendor_id: ece.vendor_id,
            options: ece.options,
            comp_mask: 0,
        };
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
        Ok(Ece {
            vendor_id: raw.vendor_id,
            options: raw.options,
        })
    }
}
