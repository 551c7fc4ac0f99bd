//! A registered memory region with the memory behind it.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::access::{AccessFlags, RawAccess};
use super::alloc::Allocation;
use super::options::MemoryOptions;
use super::registration::Registration;
use crate::error::{Error, Result};
use crate::pd::ProtectionDomain;

/// A registered memory region and the allocation behind it.
pub(crate) struct Region {
    registration: ManuallyDrop<Registration>,
    memory: ManuallyDrop<Allocation>,
    access: AccessFlags,
    /// What was asked for besides, which stays when the access changes.
    flags: RawAccess,
}

impl Region {
    /// Obtains `len` bytes and registers them.
    pub(crate) fn register(
        pd: &ProtectionDomain,
        len: usize,
        access: AccessFlags,
        options: MemoryOptions,
    ) -> Result<Self> {
        let (flags, zero_based) = (options.flags(), options.zero_based);
        let memory = Allocation::new(len, options.backing)?;
        Self::register_memory(pd, memory, access, flags, zero_based)
    }

    /// Registers memory that is there.
    pub(crate) fn register_memory(
        pd: &ProtectionDomain,
        memory: Allocation,
        access: AccessFlags,
        flags: RawAccess,
        zero_based: bool,
    ) -> Result<Self> {
        let all = RawAccess::from(access) | flags;
        // SAFETY: the allocation outlives the registration: see `drop`.
        let registration =
            unsafe { Registration::of_memory(pd, memory.start(), memory.len(), all, zero_based) }?;
        Ok(Self {
            registration: ManuallyDrop::new(registration),
            memory: ManuallyDrop::new(memory),
            access,
            flags,
        })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.memory.start()
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    pub(crate) fn is_words(&self) -> bool {
        self.memory.is_words()
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.registration.lkey()
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.registration.rkey()
    }

    /// By which address requests and peers name its first byte.
    pub(crate) fn base(&self) -> u64 {
        self.registration.base()
    }

    pub(crate) fn access(&self) -> AccessFlags {
        self.access
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        self.registration.pd()
    }

    pub(crate) fn registration(&self) -> &Registration {
        &self.registration
    }

    /// All that it is registered with, were the access this.
    pub(crate) fn raw_access(&self, access: AccessFlags) -> RawAccess {
        RawAccess::from(access) | self.flags
    }

    pub(crate) fn registration_mut(&mut self) -> &mut Registration {
        &mut self.registration
    }

    pub(crate) fn set_access(&mut self, access: AccessFlags) {
        self.access = access;
    }

    /// The same memory, registered for local access only. On failure the region is as before.
    pub(crate) fn into_local(self) -> std::result::Result<Self, (Self, Error)> {
        let (access, flags) = (AccessFlags::LOCAL_WRITE, self.flags);
        let all = self.raw_access(access);
        // Registered anew before the old registration ends: what fails then leaves a region behind.
        // SAFETY: the allocation outlives either registration, as it goes on in the region
        // returned.
        let local =
            unsafe { Registration::of_memory(self.pd(), self.start(), self.len(), all, false) };
        let local = match local {
            Ok(local) => local,
            Err(error) => return Err((self, error)),
        };
        let mut this = ManuallyDrop::new(self);
        // SAFETY: both are taken out of `this` once, which is not dropped.
        let (old, memory) = unsafe {
            (
                ManuallyDrop::take(&mut this.registration),
                ManuallyDrop::take(&mut this.memory),
            )
        };
        let memory = ManuallyDrop::new(memory);
        match old.end() {
            Ok(()) => Ok(Self {
                registration: ManuallyDrop::new(local),
                memory,
                access,
                flags,
            }),
            Err((old, error)) => Err((
                Self {
                    registration: ManuallyDrop::new(old),
                    memory,
                    access: this.access,
                    flags,
                },
                error,
            )),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: taken once. No request that names the region is in flight: queue pairs own the
        // pieces they were given, and give them up only by a completion or after they were
        // destroyed.
        let registration = unsafe { ManuallyDrop::take(&mut self.registration) };
        if registration.end_or_leak() {
            // SAFETY: not used again; the device can no longer reach the memory.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        } // else the device may still reach the memory: it stays allocated for ever
    }
}
