//! Memory without a CPU address: memory of another device, of the RDMA device itself, or none at
//! all.

#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use rdma_sys::{ibv_alloc_null_mr, ibv_reg_dm_mr, ibv_reg_dmabuf_mr, ibv_sge};

use super::access::{AccessFlags, RawAccess};
use super::registration::Registration;
use super::remote::RemoteMemory;
use crate::convert::non_null;
use crate::dm::DeviceMemory;
use crate::error::{Error, ErrorKind, Result};
use crate::pd::ProtectionDomain;
use crate::raw::AsRaw;

/// Registered memory that the CPU does not access. Clones refer to the same region.
///
/// This is a dma-buf of another device, [memory of the RDMA device](DeviceMemory) or the null
/// region. Requests use it through a [`Held`](crate::Held) token, and peers can be granted access.
/// Only a queue that was created with
/// [`device_addresses`](crate::QpOptions::device_addresses) holds it.
///
/// # Example
/// This example sends from a gigabyte of GPU memory, exported as a dma-buf, without a copy in host
/// memory:
/// ```no_run
/// use ibverbs::{AccessFlags, CompletionQueue, ProtectionDomain, QpOptions, Rc, wr};
/// use std::os::fd::BorrowedFd;
/// # fn f(pd: ProtectionDomain, cq: CompletionQueue, dmabuf: BorrowedFd<'_>) -> ibverbs::Result<()> {
/// let options = QpOptions::new().device_addresses(true);
/// let mut qp = pd.create_qp::<Rc>(&cq, &cq, options)?;
/// // Connect it here.
/// let region = pd.reg_dmabuf(dmabuf, 0, 1 << 30, AccessFlags::REMOTE_READ)?;
/// let held = qp.hold(&region)?;
/// qp.post_send(wr::send(held.slice(0..1 << 20).expect("within the region")))?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_reg_mr")]
#[doc(alias = "ibv_alloc_dm")]
#[doc(alias = "ibv_alloc_null_mr")]
#[derive(Clone)]
pub struct DeviceRegion(Arc<DeviceRegistration>);

struct DeviceRegistration {
    registration: Registration,
    len: u64,
    access: AccessFlags,
    /// Must outlive the registration.
    _memory: Option<DeviceMemory>,
}

impl ProtectionDomain {
    /// Registers `len` bytes of a dma-buf, starting at `offset`. A dma-buf is memory of another
    /// device, exported by its driver. The file descriptor can be closed afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the driver does not support it, as on Soft-RoCE and
    /// Soft-iWARP.
    #[doc(alias = "ibv_reg_dmabuf_mr")]
    pub fn reg_dmabuf(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        access: AccessFlags,
    ) -> Result<DeviceRegion> {
        let access = access | AccessFlags::LOCAL_WRITE;
        let flags = RawAccess::from(access).bits() as i32;
        let what = || {
            format!(
                "{len} bytes at {offset} of a dma-buf on {}",
                self.context().device_name()
            )
        };
        let mr = non_null("ibv_reg_dmabuf_mr", what, || {
            // The address is the offset, which has the same position in a page as the memory.
            // SAFETY: the domain and the descriptor are alive. The kernel keeps the memory alive,
            // and no reference to it exists.
            unsafe { ibv_reg_dmabuf_mr(self.as_raw(), offset, len, offset, fd.as_raw_fd(), flags) }
        })?;
        // SAFETY: the region was just registered in this domain and has no other owner.
        let registration = unsafe { Registration::from_raw(self, mr, offset) };
        Ok(DeviceRegion(Arc::new(DeviceRegistration {
            registration,
            len: len as u64,
            access,
            _memory: None,
        })))
    }

    /// Registers `len` bytes of device memory, starting at `offset`.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidInput`]: the range is not within the memory.
    /// - [`ErrorKind::Mismatch`]: the memory belongs to another open device.
    #[doc(alias = "ibv_reg_dm_mr")]
    pub fn reg_dm(
        &self,
        memory: &DeviceMemory,
        offset: u64,
        len: usize,
        access: AccessFlags,
    ) -> Result<DeviceRegion> {
        memory.check(offset, len)?;
        if memory.context().as_raw() != self.context().as_raw() {
            let what = format!(
                "device memory of {} in a protection domain of {}",
                memory.context().device_name(),
                self.context().device_name()
            );
            return Err(Error::new(ErrorKind::Mismatch, "ibv_reg_dm_mr", what));
        }
        let access = access | AccessFlags::LOCAL_WRITE;
        let flags = (RawAccess::from(access) | RawAccess::ZERO_BASED).bits();
        let what = || {
            format!(
                "{len} bytes at {offset} on {}",
                self.context().device_name()
            )
        };
        let mr = non_null("ibv_reg_dm_mr", what, || {
            // SAFETY: the domain and the memory are alive and belong to the same device.
            unsafe { ibv_reg_dm_mr(self.as_raw(), memory.as_raw(), offset, len, flags) }
        })?;
        // SAFETY: the region was just registered in this domain and has no other owner.
        let registration = unsafe { Registration::from_raw(self, mr, 0) };
        Ok(DeviceRegion(Arc::new(DeviceRegistration {
            registration,
            len: len as u64,
            access,
            _memory: Some(memory.clone()),
        })))
    }

    /// Allocates the null region. Data received into it is discarded, and data sent from it is
    /// unspecified. It has the maximum length of a scatter entry, and peers cannot access it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device does not support null regions.
    #[doc(alias = "ibv_alloc_null_mr")]
    pub fn null_region(&self) -> Result<DeviceRegion> {
        let what = || self.context().device_name().to_owned();
        // SAFETY: the domain is alive.
        let mr = non_null("ibv_alloc_null_mr", what, || unsafe {
            ibv_alloc_null_mr(self.as_raw())
        })?;
        // SAFETY: the region was just allocated in this domain and has no other owner.
        let registration = unsafe { Registration::from_raw(self, mr, 0) };
        let (len, access) = (u32::MAX.into(), AccessFlags::empty());
        Ok(DeviceRegion(Arc::new(DeviceRegistration {
            registration,
            len,
            access,
            _memory: None,
        })))
    }
}

impl DeviceRegion {
    /// Returns the length in bytes.
    #[allow(
        clippy::len_without_is_empty,
        reason = "a region has at least one byte"
    )]
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Returns the whole region as a peer addresses it, or `None` if peers have no access.
    pub fn remote(&self) -> Option<RemoteMemory> {
        let DeviceRegistration {
            registration,
            len,
            access,
            ..
        } = &*self.0;
        access
            .intersects(AccessFlags::REMOTE)
            .then(|| RemoteMemory {
                addr: registration.base(),
                len: *len,
                rkey: registration.rkey(),
            })
    }

    /// Returns the entry for the whole region, up to the maximum length of an entry.
    pub(crate) fn sge(&self) -> ibv_sge {
        let length = u32::try_from(self.0.len).unwrap_or(u32::MAX);
        ibv_sge {
            addr: self.0.registration.base(),
            length,
            lkey: self.0.registration.lkey(),
        }
    }

    /// Returns the protection domain in which the memory is registered.
    pub fn pd(&self) -> &ProtectionDomain {
        self.0.registration.pd()
    }
}

impl fmt::Debug for DeviceRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceRegion")
            .field("len", &self.len())
            .field("access", &self.0.access)
            .finish()
    }
}
