//! Memory that the processor does not address: of another device, of the network device itself, or
//! none at all.

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
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::pd::ProtectionDomain;
use crate::raw::AsRaw;

/// Registered memory that the processor does not address: a dma-buf of another device, [memory of
/// the network device](DeviceMemory), or the null region. Clones share it.
///
/// Requests send from it and receive into it through a [`Held`](crate::Held) token, and peers may
/// be given access to it.
///
/// # Example
/// A gigabyte of a GPU's memory, which its driver exported, sent without crossing the processor's:
/// ```no_run
/// use ibverbs::{AccessFlags, QueuePair, Rc, wr};
/// use std::os::fd::BorrowedFd;
/// # fn f(qp: &mut QueuePair<Rc>, dmabuf: BorrowedFd<'_>) -> ibverbs::Result<()> {
/// let region = qp
///     .pd()
///     .reg_dmabuf(dmabuf, 0, 1 << 30, AccessFlags::REMOTE_READ)?;
/// let held = qp.hold(&region)?;
/// qp.post_send(wr::send(held.slice(0..1 << 20).expect("within")))?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html),
/// [`ibv_alloc_dm(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_dm.3.html),
/// [`ibv_alloc_null_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_null_mr.3.html)
#[derive(Clone)]
pub struct DeviceRegion(Arc<Inner>);

struct Inner {
    registration: Registration,
    len: u64,
    access: AccessFlags,
    /// Outlives the registration.
    _memory: Option<DeviceMemory>,
}

impl ProtectionDomain {
    /// Registers `len` bytes from `offset` on of a dma-buf: memory of another device, as its driver
    /// exports it. The file descriptor can be closed afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver cannot do it, as Soft-RoCE and Soft-iWARP.
    ///
    /// # References
    /// [`ibv_reg_dmabuf_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
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
            // Addressed by its offset, which lies at the same place in a page as the memory.
            // SAFETY: the domain and the descriptor are alive. The kernel keeps the memory behind
            // it, which no reference covers.
            unsafe { ibv_reg_dmabuf_mr(self.as_raw(), offset, len, offset, fd.as_raw_fd(), flags) }
        })?;
        // SAFETY: just registered.
        let registration = unsafe { Registration::from_raw(self, mr, offset) };
        Ok(DeviceRegion(Arc::new(Inner {
            registration,
            len: len as u64,
            access,
            _memory: None,
        })))
    }

    /// Registers `len` bytes from `offset` on of the device's own memory.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when they do not lie within, [`ErrorKind::Mismatch`] for memory
    /// of another device.
    ///
    /// # References
    /// [`ibv_reg_dm_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_dm.3.html)
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
                "memory of {} for a domain of {}",
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
            // SAFETY: domain and memory are alive, and of one device.
            unsafe { ibv_reg_dm_mr(self.as_raw(), memory.as_raw(), offset, len, flags) }
        })?;
        // SAFETY: just registered.
        let registration = unsafe { Registration::from_raw(self, mr, 0) };
        Ok(DeviceRegion(Arc::new(Inner {
            registration,
            len: len as u64,
            access,
            _memory: Some(memory.clone()),
        })))
    }

    /// The null region: what is received into it is dropped, and what is sent from it is
    /// unspecified. It is as long as a scatter entry can be, and peers cannot name it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the device has none.
    ///
    /// # References
    /// [`ibv_alloc_null_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_alloc_null_mr.3.html)
    pub fn null_region(&self) -> Result<DeviceRegion> {
        let what = || self.context().device_name().to_owned();
        // SAFETY: the domain is alive.
        let mr = non_null("ibv_alloc_null_mr", what, || unsafe {
            ibv_alloc_null_mr(self.as_raw())
        })?;
        // SAFETY: just made.
        let registration = unsafe { Registration::from_raw(self, mr, 0) };
        let (len, access) = (u32::MAX.into(), AccessFlags::empty());
        Ok(DeviceRegion(Arc::new(Inner {
            registration,
            len,
            access,
            _memory: None,
        })))
    }
}

impl DeviceRegion {
    /// Its length in bytes.
    #[allow(
        clippy::len_without_is_empty,
        reason = "a region has at least one byte"
    )]
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// All of it as a peer names it, if it is open to peers.
    pub fn remote(&self) -> Option<RemoteMemory> {
        let Inner {
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

    /// Its local memory, as far as a scatter entry reaches.
    pub(crate) fn whole(&self) -> ibv_sge {
        let length = u32::try_from(self.0.len).unwrap_or(u32::MAX);
        ibv_sge {
            addr: self.0.registration.base(),
            length,
            lkey: self.0.registration.lkey(),
        }
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        self.0.registration.pd()
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
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
