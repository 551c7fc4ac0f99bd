//! A registered memory region.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use rdma_sys::{ibv_dereg_mr, ibv_mr, ibv_reg_mr};

use super::access::AccessFlags;
use super::alloc::Allocation;
use crate::convert::non_null;
use crate::error::Result;
use crate::pd::ProtectionDomain;
use crate::raw::AsRaw;

/// A registered memory region and the allocation behind it.
pub(crate) struct Region {
    mr: NonNull<ibv_mr>,
    lkey: u32,
    rkey: u32,
    memory: ManuallyDrop<Allocation>,
    pd: ManuallyDrop<ProtectionDomain>,
}

// SAFETY: a region is a handle and raw memory; libibverbs' functions on the handle are thread safe.
unsafe impl Send for Region {}
// SAFETY: as above; a shared Region gives out addresses and the key only.
unsafe impl Sync for Region {}

impl Region {
    /// Allocates `len` bytes and registers them.
    pub(crate) fn register(pd: &ProtectionDomain, len: usize, access: AccessFlags) -> Result<Self> {
        let memory = Allocation::zeroed(len)?;
        let mr = non_null(
            "ibv_reg_mr",
            || format!("{len} bytes on {}", pd.context().device_name()),
            || {
                // SAFETY: the domain is alive; the range is an allocation that outlives the registration (see `drop`).
                unsafe { ibv_reg_mr(pd.as_raw(), memory.start().as_ptr().cast(), len, access.bits() as i32) }
            },
        )?;
        // SAFETY: the region was just returned by the library.
        let (lkey, rkey) = unsafe { (mr.as_ref().lkey, mr.as_ref().rkey) };
        Ok(Self { mr, lkey, rkey, memory: ManuallyDrop::new(memory), pd: ManuallyDrop::new(pd.clone()) })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.memory.start()
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.lkey
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: registered in `register`, deregistered once. No request that names the region is in flight: queue pairs own the
        // pieces they were given, and give them up only by a completion or after they were destroyed.
        let returned = unsafe { ibv_dereg_mr(self.mr.as_ptr()) };
        if returned == 0 {
            // SAFETY: neither is used again; the device can no longer reach the memory.
            unsafe {
                ManuallyDrop::drop(&mut self.memory);
                ManuallyDrop::drop(&mut self.pd);
            }
        } else {
            crate::leak::count(); // the device may still reach the memory: it stays allocated for ever
        }
    }
}
