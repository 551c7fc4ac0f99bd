//! A memory region as the device knows it, whatever memory is behind it.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use rdma_sys::{ibv_dereg_mr, ibv_mr, ibv_reg_mr, ibv_reg_mr_iova};

use super::access::RawAccess;
use crate::convert::{non_null, zero_or_errno};
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::pd::ProtectionDomain;
use crate::raw::AsRaw;

/// A registered memory region. It is deregistered when dropped; who made it keeps the memory until
/// then, and for ever if that fails.
pub(crate) struct Registration {
    mr: NonNull<ibv_mr>,
    lkey: u32,
    rkey: u32,
    /// By which address requests and peers name its first byte.
    base: u64,
    pd: ManuallyDrop<ProtectionDomain>,
}

// SAFETY: a region is a handle; libibverbs' functions on it are thread safe.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers `len` bytes at `start`; with `zero_based`, they are named from 0 on.
    ///
    /// # Safety
    /// The memory stays mapped until the region is deregistered, and for ever if that fails;
    /// meanwhile it is left to the device as far as `access` and requests let it in.
    pub(crate) unsafe fn of_memory(
        pd: &ProtectionDomain,
        start: NonNull<u8>,
        len: usize,
        access: RawAccess,
        zero_based: bool,
    ) -> Result<Self> {
        let what = || format!("{len} bytes on {}", pd.context().device_name());
        if zero_based && pd.context().query_device()?.is_soft_iwarp() {
            return Err(
                Error::new(ErrorKind::Unsupported, "ibv_reg_mr_iova", what())
                    .with_hint("siw takes memory by its address whatever it is asked"),
            );
        }
        // The device is outside the program: exposing says that the memory may be reached through
        // the number alone.
        let address = start.as_ptr().expose_provenance() as u64;
        let base = if zero_based { 0 } else { address };
        let mr = non_null("ibv_reg_mr", what, || {
            let start = start.as_ptr().cast();
            // SAFETY: the domain is alive; the memory is as the caller promises.
            unsafe {
                if zero_based {
                    ibv_reg_mr_iova(pd.as_raw(), start, len, base, access.bits() as i32)
                } else {
                    ibv_reg_mr(pd.as_raw(), start, len, access.bits() as i32)
                }
            }
        })?;
        // SAFETY: just registered.
        Ok(unsafe { Self::from_raw(pd, mr, base) })
    }

    /// Takes over a region that a verb has just returned.
    ///
    /// # Safety
    /// `mr` is live, of `pd`, and nobody else deregisters it.
    pub(crate) unsafe fn from_raw(pd: &ProtectionDomain, mr: NonNull<ibv_mr>, base: u64) -> Self {
        // SAFETY: the caller's promise.
        let (lkey, rkey) = unsafe { (mr.as_ref().lkey, mr.as_ref().rkey) };
        Self {
            mr,
            lkey,
            rkey,
            base,
            pd: ManuallyDrop::new(pd.clone()),
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

    pub(crate) fn as_ptr(&self) -> *mut ibv_mr {
        self.mr.as_ptr()
    }

    /// Reads the keys again, after a verb changed them.
    pub(crate) fn refresh(&mut self) {
        // SAFETY: the region is live.
        (self.lkey, self.rkey) = unsafe { (self.mr.as_ref().lkey, self.mr.as_ref().rkey) };
    }

    /// Deregisters; on failure the region is as before.
    pub(crate) fn end(self) -> std::result::Result<(), (Self, Error)> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: live, and not used again if it succeeds.
        let returned = unsafe { ibv_dereg_mr(this.mr.as_ptr()) };
        match zero_or_errno(
            "ibv_dereg_mr",
            || this.pd.context().device_name().to_owned(),
            returned,
        ) {
            Ok(()) => {
                // SAFETY: `this` is not used or dropped after.
                unsafe { ManuallyDrop::drop(&mut this.pd) };
                Ok(())
            }
            Err(error) => Err((ManuallyDrop::into_inner(this), error)),
        }
    }

    /// Deregisters, or leaks and counts; whether the device can no longer reach the memory.
    pub(crate) fn end_or_leak(self) -> bool {
        match self.end() {
            Ok(()) => true,
            Err((this, _)) => {
                crate::leak::count();
                std::mem::forget(this);
                false
            }
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: live until here, deregistered once: `end` forgets self.
        if unsafe { ibv_dereg_mr(self.mr.as_ptr()) } == 0 {
            // SAFETY: not used after.
            unsafe { ManuallyDrop::drop(&mut self.pd) };
        } else {
            crate::leak::count();
        }
    }
}
