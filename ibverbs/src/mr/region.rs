//! Registered memory regions with their allocations.

#![allow(unsafe_code)]

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use super::access::{AccessFlags, RawAccess};
use super::alloc::Allocation;
use super::caller::CallerMemory;
use super::options::{Backing, MemoryOptions};
use super::registration::{Extras, Registration};
use crate::error::{Error, ErrorKind, Result};
use crate::pd::ProtectionDomain;

/// A registered memory region and the allocation behind it.
pub(crate) struct Region {
    registration: ManuallyDrop<Registration>,
    /// Other registrations of the same memory share it ([`register_in`](Self::register_in)).
    memory: ManuallyDrop<Arc<Allocation>>,
    access: AccessFlags,
    /// The other flags of the registration, which stay when the access rights change.
    flags: RawAccess,
}

impl Region {
    /// Allocates and registers `len` bytes.
    pub(crate) fn register(
        pd: &ProtectionDomain,
        len: usize,
        access: AccessFlags,
        options: MemoryOptions,
    ) -> Result<Self> {
        Self::register_with(pd, len, access, options, |_| Ok(()))
    }

    /// Allocates `len` bytes, lets `prepare` check or fill them, and registers them.
    ///
    /// If the device may read them after they were deregistered, memory of the heap is replaced by
    /// pages of its own. Unmapping them is safe, because whoever reads them holds references to
    /// them.
    pub(crate) fn register_with(
        pd: &ProtectionDomain,
        len: usize,
        access: AccessFlags,
        options: MemoryOptions,
        prepare: impl FnOnce(&mut Allocation) -> Result<()>,
    ) -> Result<Self> {
        let (flags, zero_based) = (options.flags(), options.zero_based);
        let dma_handle = options.dma_handle;
        let backing = match options.backing {
            Backing::Heap if is_read_after_deregistration(pd, access) => Backing::Pages,
            Backing::Provider if is_read_after_deregistration(pd, access) => {
                let device = pd.context().device_name();
                let what = format!(
                    "{len} bytes of the provider: {device} may read them after they were freed"
                );
                return Err(Error::new(ErrorKind::Unsupported, "ibv_alloc_buf", what)
                    .with_help("omit the right to read, or use Backing::Pages"));
            }
            backing => backing,
        };
        let mut memory = Allocation::new(pd, len, backing)?;
        prepare(&mut memory)?;
        let all = RawAccess::from(access) | flags;
        let extras = Extras {
            buffer: memory.provider_buffer(),
            dma_handle,
        };
        // SAFETY: `drop` frees the allocation after the registration has ended.
        let registration =
            unsafe { Registration::register(pd, memory.start(), len, all, zero_based, extras) }?;
        Ok(Self {
            registration: ManuallyDrop::new(registration),
            memory: ManuallyDrop::new(Arc::new(memory)),
            access,
            flags,
        })
    }

    /// Registers the same memory in another domain. No other code than that of
    /// [`SharedRegion`](crate::SharedRegion) may access the memory of either region.
    ///
    /// A device that may read memory after it was deregistered is refused, because the memory stays
    /// in use then.
    pub(crate) fn register_in(&self, pd: &ProtectionDomain, access: AccessFlags) -> Result<Self> {
        for (pd, access) in [(self.pd(), self.access), (pd, access)] {
            if is_read_after_deregistration(pd, access) {
                let what = format!(
                    "{} bytes in several domains: {} may read them after they were deregistered",
                    self.len(),
                    pd.context().device_name()
                );
                return Err(Error::new(ErrorKind::Unsupported, "register_in", what)
                    .with_help("omit the rights to read, or register other memory"));
            }
        }
        if !self.extras().is_empty() {
            let what = format!("{} bytes of the provider, or with a DMA handle", self.len());
            return Err(Error::new(ErrorKind::Unsupported, "register_in", what)
                .with_help("such memory belongs to one device: register other memory"));
        }
        let all = RawAccess::from(access) | self.flags;
        let zero_based = self.is_zero_based();
        let (start, len, none) = (self.start(), self.len(), Extras::default());
        // SAFETY: `drop` frees the allocation after the last of its registrations has ended. There
        // are never references to the memory of a shared region.
        let registration =
            unsafe { Registration::register(pd, start, len, all, zero_based, none) }?;
        self.memory.set_shared();
        Ok(Self {
            registration: ManuallyDrop::new(registration),
            memory: ManuallyDrop::new(Arc::clone(&self.memory)),
            access,
            flags: self.flags,
        })
    }

    fn extras(&self) -> Extras {
        Extras {
            buffer: self.memory.provider_buffer(),
            dma_handle: self.registration.dma_handle().cloned(),
        }
    }

    /// Returns `true` if the memory was ever registered in several domains.
    pub(crate) fn is_registered_again(&self) -> bool {
        self.memory.is_shared()
    }

    /// Returns `true` if the device may read the memory after it was deregistered.
    pub(crate) fn is_read_after_deregistration(&self) -> bool {
        is_read_after_deregistration(self.pd(), self.access)
    }

    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.memory.start()
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.registration.lkey()
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.registration.rkey()
    }

    /// Returns the address of the first byte as used by requests and peers.
    pub(crate) fn base(&self) -> u64 {
        self.registration.base()
    }

    /// Returns `true` if requests and peers address the memory from 0.
    pub(crate) fn is_zero_based(&self) -> bool {
        self.base() == 0
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

    /// Returns all registration flags for these access rights.
    pub(crate) fn raw_access(&self, access: AccessFlags) -> RawAccess {
        RawAccess::from(access) | self.flags
    }

    pub(crate) fn registration_mut(&mut self) -> &mut Registration {
        &mut self.registration
    }

    pub(crate) fn set_access(&mut self, access: AccessFlags) {
        self.access = access;
    }

    /// Registers the memory again for local access only. On failure, the region is unchanged.
    pub(crate) fn into_local(self) -> Result<Self, (Self, Error)> {
        let (access, flags) = (AccessFlags::LOCAL_WRITE, self.flags);
        let all = self.raw_access(access);
        // The new registration is created before the old one ends, so that a failure leaves a
        // registered region.
        // SAFETY: the allocation outlives both registrations, because it moves to the returned
        // region.
        let local = unsafe {
            let (start, len, extras) = (self.start(), self.len(), self.extras());
            Registration::register(self.pd(), start, len, all, false, extras)
        };
        let local = match local {
            Ok(local) => local,
            Err(error) => return Err((self, error)),
        };
        let mut this = ManuallyDrop::new(self);
        // SAFETY: both are taken once; `this` is not used again except for a field, and never
        // dropped.
        let (old, memory) = unsafe {
            (
                ManuallyDrop::take(&mut this.registration),
                ManuallyDrop::take(&mut this.memory),
            )
        };
        let memory = ManuallyDrop::new(memory);
        match old.deregister() {
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

impl Region {
    /// Deregisters memory of the caller and returns its owner, if it has this type. On failure, and
    /// if the device may read the memory after that, the region is unchanged.
    pub(crate) fn into_caller_owner<O: Any>(self) -> Result<O, Self> {
        let owner = self.memory.caller_memory().and_then(CallerMemory::owner);
        let has_type = matches!(owner, Some(owner) if owner.is::<O>());
        let is_only = Arc::strong_count(&self.memory) == 1 && !self.is_read_after_deregistration();
        if !has_type || !is_only {
            return Err(self);
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: both are taken once; `this` is not used again except for plain fields, and never
        // dropped.
        let (registration, memory) = unsafe {
            (
                ManuallyDrop::take(&mut this.registration),
                ManuallyDrop::take(&mut this.memory),
            )
        };
        if let Err((registration, _)) = registration.deregister() {
            return Err(Self {
                registration: ManuallyDrop::new(registration),
                memory: ManuallyDrop::new(memory),
                access: this.access,
                flags: this.flags,
            });
        }
        let owner = Arc::into_inner(memory)
            .and_then(Allocation::into_caller_memory)
            .and_then(CallerMemory::into_owner);
        match owner.map(Box::<dyn Any + Send + Sync>::downcast::<O>) {
            Some(Ok(owner)) => Ok(*owner),
            _ => unreachable!("it had an owner of this type, and no other reference"),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: taken once. No request in flight uses the region: queue pairs own the buffers of
        // their requests until the completion or their own destruction.
        let registration = unsafe { ManuallyDrop::take(&mut self.registration) };
        let may_be_read = is_read_after_deregistration(registration.pd(), self.access);
        if registration.deregister_or_leak() && (!may_be_read || self.memory.is_mapped()) {
            // SAFETY: not used again. This device can no longer access the memory, or it holds
            // references to the pages that it reads, which are not used for anything else before
            // it releases them (`DeviceProperties::finishes_read_responses`).
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        } // otherwise the memory is leaked, because the device may still access it
    }
}

/// Returns `true` if the device may read memory with these access rights after it was deregistered.
fn is_read_after_deregistration(pd: &ProtectionDomain, access: AccessFlags) -> bool {
    access.intersects(AccessFlags::PEER_READS) && !pd.context().properties().finishes_read_responses
}
