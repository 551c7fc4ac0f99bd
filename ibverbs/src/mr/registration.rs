//! Memory registrations, independent of the kind of memory.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use rdma_sys::{
    IBV_REG_MR_MASK_ADDR, IBV_REG_MR_MASK_BUF, IBV_REG_MR_MASK_DMAH, IBV_REG_MR_MASK_IOVA, ibv_buf,
    ibv_dereg_mr, ibv_mr, ibv_mr_init_attr, ibv_reg_mr, ibv_reg_mr_ex, ibv_reg_mr_iova,
};

use super::access::RawAccess;
use super::dma_handle::DmaHandle;
use crate::convert::{non_null, zero_or_errno};
use crate::error::{Error, ErrorKind, Result};
use crate::pd::ProtectionDomain;
use crate::raw::AsRaw;

/// Parts of a registration that most regions do not have.
#[derive(Clone, Default)]
pub(crate) struct Extras {
    /// The buffer of the provider that the memory belongs to.
    pub(crate) buffer: Option<NonNull<ibv_buf>>,
    pub(crate) dma_handle: Option<DmaHandle>,
}

impl Extras {
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_none() && self.dma_handle.is_none()
    }

    /// Checks that the DMA handle belongs to the device.
    fn check(&self, pd: &ProtectionDomain) -> Result<()> {
        let own = pd.context();
        match &self.dma_handle {
            Some(handle) if handle.context().as_raw() != own.as_raw() => {
                let its = handle.context().device_name();
                let what = format!(
                    "a DMA handle on {its} and a protection domain on {}",
                    own.device_name()
                );
                Err(Error::new(ErrorKind::Mismatch, REG_MR_EX, what)
                    .with_help("create both from the same Context"))
            }
            _ => Ok(()),
        }
    }
}

const REG_MR_EX: &str = "ibv_reg_mr_ex";

/// A memory registration, deregistered on drop. Its creator keeps the memory alive until then, and
/// forever if deregistration fails.
pub(crate) struct Registration {
    mr: NonNull<ibv_mr>,
    lkey: u32,
    rkey: u32,
    /// Address of the first byte as used by requests and peers.
    base: u64,
    pd: ManuallyDrop<ProtectionDomain>,
    /// Outlives the registration.
    dma_handle: ManuallyDrop<Option<DmaHandle>>,
}

// SAFETY: a region is a handle, and the libibverbs functions on it are thread-safe.
unsafe impl Send for Registration {}
// SAFETY: as for Send.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers `len` bytes at `start`. With `zero_based`, they are addressed from 0.
    ///
    /// # Safety
    /// The buffer of `extras`, if there is one, is alive, belongs to the domain and contains the
    /// memory. The memory must stay mapped until the region is deregistered, and forever if that
    /// fails.
    /// Until then, other code must not access it in ways that conflict with the accesses that
    /// `access` and posted requests permit the device.
    pub(crate) unsafe fn register(
        pd: &ProtectionDomain,
        start: NonNull<u8>,
        len: usize,
        access: RawAccess,
        zero_based: bool,
        extras: Extras,
    ) -> Result<Self> {
        extras.check(pd)?;
        let what = || format!("{len} bytes on {}", pd.context().device_name());
        if zero_based && pd.context().query_device()?.is_soft_iwarp() {
            let what = format!(
                "{}: Soft-iWARP does not support zero-based addresses",
                what()
            );
            return Err(Error::new(ErrorKind::Unsupported, "ibv_reg_mr_iova", what));
        }
        if access.contains(RawAccess::ON_DEMAND) && pd.context().is_soft_roce()? {
            // It writes outside the target (fault 47 of docs/drivers.md).
            let what = format!("{}: on-demand paging of Soft-RoCE damages memory", what());
            return Err(Error::new(ErrorKind::Unsupported, "ibv_reg_mr", what)
                .with_help("set MemoryOptions::on_demand to false"));
        }
        // Exposes the provenance, because the device accesses the memory by its address alone.
        let address = start.as_ptr().expose_provenance() as u64;
        let base = if zero_based { 0 } else { address };
        if !extras.is_empty() {
            let mut attr = ibv_mr_init_attr {
                length: len,
                access: access.bits() as i32,
                comp_mask: IBV_REG_MR_MASK_ADDR.into(),
                addr: start.as_ptr().cast(),
                ..Default::default()
            };
            if zero_based {
                attr.comp_mask |= u64::from(IBV_REG_MR_MASK_IOVA);
            }
            if let Some(buffer) = extras.buffer {
                attr.comp_mask |= u64::from(IBV_REG_MR_MASK_BUF);
                attr.buf = buffer.as_ptr();
            }
            if let Some(handle) = &extras.dma_handle {
                attr.comp_mask |= u64::from(IBV_REG_MR_MASK_DMAH);
                attr.dmah = handle.as_raw();
            }
            let mr = non_null(REG_MR_EX, what, || {
                // SAFETY: domain and handle are alive, and the attributes are valid during the
                // call; the caller guarantees the state of the memory and of the buffer.
                unsafe { ibv_reg_mr_ex(pd.as_raw(), &raw mut attr) }
            })?;
            // SAFETY: the region was just registered in this domain and has no other owner.
            let mut registration = unsafe { Self::from_raw(pd, mr, base) };
            *registration.dma_handle = extras.dma_handle;
            return Ok(registration);
        }
        let mr = non_null("ibv_reg_mr", what, || {
            let start = start.as_ptr().cast();
            // SAFETY: the domain is alive; the caller guarantees the state of the memory.
            unsafe {
                if zero_based {
                    ibv_reg_mr_iova(pd.as_raw(), start, len, base, access.bits() as i32)
                } else {
                    ibv_reg_mr(pd.as_raw(), start, len, access.bits() as i32)
                }
            }
        })?;
        // SAFETY: the region was just registered in this domain and has no other owner.
        Ok(unsafe { Self::from_raw(pd, mr, base) })
    }

    /// Takes ownership of a region that a verb has just returned.
    ///
    /// # Safety
    /// `mr` must be a live region of `pd` that no other code deregisters.
    pub(crate) unsafe fn from_raw(pd: &ProtectionDomain, mr: NonNull<ibv_mr>, base: u64) -> Self {
        // SAFETY: the caller guarantees that the region is live.
        let (lkey, rkey) = unsafe { (mr.as_ref().lkey, mr.as_ref().rkey) };
        Self {
            mr,
            lkey,
            rkey,
            base,
            pd: ManuallyDrop::new(pd.clone()),
            dma_handle: ManuallyDrop::new(None),
        }
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.lkey
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    pub(crate) fn dma_handle(&self) -> Option<&DmaHandle> {
        self.dma_handle.as_ref()
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_mr {
        self.mr.as_ptr()
    }

    /// Reads the keys again, after a verb has changed them.
    pub(crate) fn refresh(&mut self) {
        // SAFETY: the region is live.
        (self.lkey, self.rkey) = unsafe { (self.mr.as_ref().lkey, self.mr.as_ref().rkey) };
    }

    /// Deregisters the region. On failure, the region is unchanged.
    pub(crate) fn deregister(self) -> Result<(), (Self, Error)> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the region is live and is not used again if the call succeeds.
        let returned = unsafe { ibv_dereg_mr(this.mr.as_ptr()) };
        match zero_or_errno(
            "ibv_dereg_mr",
            || this.pd.context().device_name().to_owned(),
            returned,
        ) {
            Ok(()) => {
                // SAFETY: `this` is not used or dropped afterwards.
                unsafe { this.drop_parents() };
                Ok(())
            }
            Err(error) => Err((ManuallyDrop::into_inner(this), error)),
        }
    }

    /// Drops what the region kept alive.
    ///
    /// # Safety
    /// The region was deregistered, and `self` is not used again.
    unsafe fn drop_parents(&mut self) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            ManuallyDrop::drop(&mut self.dma_handle);
            ManuallyDrop::drop(&mut self.pd);
        }
    }

    /// Deregisters the region, or leaks and counts it. Returns `true` if the device can no longer
    /// access the memory.
    pub(crate) fn deregister_or_leak(self) -> bool {
        match self.deregister() {
            Ok(()) => true,
            Err((this, _)) => {
                crate::leak::count_leaked_object();
                std::mem::forget(this);
                false
            }
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: the region is live and deregistered once: `deregister` forgets self.
        if unsafe { ibv_dereg_mr(self.mr.as_ptr()) } == 0 {
            // SAFETY: not used afterwards.
            unsafe { self.drop_parents() };
        } else {
            crate::leak::count_leaked_object();
        }
    }
}
