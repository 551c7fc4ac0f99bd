//! Memory on the RDMA device.

#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{
    ibv_alloc_dm, ibv_alloc_dm_attr, ibv_dm, ibv_dm_export_dmabuf_fd, ibv_free_dm,
    ibv_memcpy_from_dm, ibv_memcpy_to_dm,
};

use crate::convert::{non_null, not_negative, zero_or_errno};
use crate::device::{Avoided, Context};
use crate::error::{COPY_DEVICE_MEMORY, Error, ErrorKind, Result};
use crate::raw::{AsRaw, as_raw};

/// Memory on the RDMA device. Accesses from the network do not cross the PCI bus. Clones refer to
/// the same memory.
///
/// The CPU copies data in and out. Requests and peers can access the memory after it was registered
/// ([`ProtectionDomain::reg_dm`](crate::ProtectionDomain::reg_dm)).
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("mlx5_0")?.open()?;
/// use ibverbs::AccessFlags;
/// let counters = context.alloc_dm(64, 3)?;
/// counters.write(0, &[0; 64])?;
/// let region = context
///     .alloc_pd()?
///     .reg_dm(&counters, 0, 64, AccessFlags::REMOTE_ATOMIC)?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_alloc_dm")]
#[derive(Clone)]
pub struct DeviceMemory(Arc<AllocatedMemory>);

struct AllocatedMemory {
    raw: NonNull<ibv_dm>,
    len: usize,
    context: Context,
}

// SAFETY: the memory is a handle, and the libibverbs functions on it are thread-safe. Concurrent
// copies are no data race, because the provider accesses the memory atomically, word by word
// (docs/drivers.md, "What the library assumes").
unsafe impl Send for AllocatedMemory {}
// SAFETY: as for Send.
unsafe impl Sync for AllocatedMemory {}

impl Drop for AllocatedMemory {
    fn drop(&mut self) {
        // SAFETY: this is the last reference: every region of the memory holds an Arc of it.
        if unsafe { ibv_free_dm(self.raw.as_ptr()) } != 0 {
            crate::leak::with_parent(&self.context);
        }
    }
}

impl Context {
    /// Allocates `len` bytes of device memory with an alignment of 2^`log_align` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device has no memory to allocate. The extended attributes
    /// have the size (`max_dm_size`).
    #[doc(alias = "ibv_alloc_dm")]
    pub fn alloc_dm(&self, len: usize, log_align: u32) -> Result<DeviceMemory> {
        let mut attr = ibv_alloc_dm_attr {
            length: len,
            log_align_req: log_align,
            comp_mask: 0,
        };
        let what = || format!("{len} bytes on {}", self.device_name());
        // SAFETY: the context is open, and the attributes are valid during the call.
        let raw = non_null("ibv_alloc_dm", what, || unsafe {
            ibv_alloc_dm(self.as_raw(), &raw mut attr)
        })?;
        Ok(DeviceMemory(Arc::new(AllocatedMemory {
            raw,
            len,
            context: self.clone(),
        })))
    }
}

impl DeviceMemory {
    /// Returns the length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Returns the open device.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Copies bytes into the memory, starting at `offset`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the range is out of bounds, or if the device does not support
    /// its offset or length (often, both must be multiples of 4).
    ///
    /// [`ErrorKind::Unsupported`] if only the device can access the memory, as that of mana.
    #[doc(alias = "ibv_memcpy_to_dm")]
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        self.check_copy("ibv_memcpy_to_dm", offset, from.len())?;
        if !is_aligned(from) {
            return with_aligned(from.len(), |aligned| {
                aligned.copy_from_slice(from);
                self.write(offset, aligned)
            });
        }
        // SAFETY: the memory is alive, the range is in bounds, and the bytes are readable during
        // the call.
        let returned =
            unsafe { ibv_memcpy_to_dm(self.as_raw(), offset, from.as_ptr().cast(), from.len()) };
        zero_or_errno(
            "ibv_memcpy_to_dm",
            || self.describe(offset, from.len()),
            returned,
        )
    }

    /// Copies bytes starting at `offset` out of the memory.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    #[doc(alias = "ibv_memcpy_from_dm")]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check_copy("ibv_memcpy_from_dm", offset, into.len())?;
        if !is_aligned(into) {
            return with_aligned(into.len(), |aligned| {
                self.read(offset, aligned)?;
                into.copy_from_slice(aligned);
                Ok(())
            });
        }
        // SAFETY: the memory is alive, the range is in bounds, and the bytes are writable during
        // the call.
        let returned = unsafe {
            ibv_memcpy_from_dm(into.as_mut_ptr().cast(), self.as_raw(), offset, into.len())
        };
        zero_or_errno(
            "ibv_memcpy_from_dm",
            || self.describe(offset, into.len()),
            returned,
        )
    }

    /// Exports the memory as a dma-buf, which other devices can
    /// [register](crate::ProtectionDomain::reg_dmabuf).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device, the kernel or the installed rdma-core (62 or
    /// newer) cannot export it.
    ///
    /// # References
    /// [`ibv_dm_export_dmabuf_fd(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_dm_export_dmabuf_fd.3.md)
    #[doc(alias = "ibv_dm_export_dmabuf_fd")]
    pub fn export_dmabuf(&self) -> Result<OwnedFd> {
        // SAFETY: the memory is alive.
        let returned = unsafe { ibv_dm_export_dmabuf_fd(self.as_raw()) };
        let what = || {
            let device = self.0.context.device_name();
            format!("{} bytes on {device}", self.0.len)
        };
        let fd = not_negative("ibv_dm_export_dmabuf_fd", what, returned)?;
        // SAFETY: the descriptor is new and has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn check_copy(&self, verb: &'static str, offset: u64, len: usize) -> Result<()> {
        if self.0.context.avoids(Avoided::DM_COPIES) {
            let what = format!("{}: its provider cannot copy", self.describe(offset, len));
            return Err(
                Error::new(ErrorKind::Unsupported, verb, what).with_help(COPY_DEVICE_MEMORY)
            );
        }
        self.check(offset, len)
    }

    pub(crate) fn check(&self, offset: u64, len: usize) -> Result<()> {
        if offset
            .checked_add(len as u64)
            .is_none_or(|end| end > self.0.len as u64)
        {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "access device memory",
                format!("{}: out of bounds", self.describe(offset, len)),
            ));
        }
        Ok(())
    }

    fn describe(&self, offset: u64, len: usize) -> String {
        format!(
            "{len} bytes at offset {offset} of {} bytes on {}",
            self.0.len,
            self.0.context.device_name()
        )
    }
}

/// Returns `true` if a provider can access the bytes as words: libmlx5 copies `uint32_t`
/// (`mlx5_access_dm` in `providers/mlx5/verbs.c`).
fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr() % align_of::<u32>() == 0
}

/// Calls `copy` with memory of this length that is aligned for words.
fn with_aligned(len: usize, copy: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
    let mut words = vec![0; len + align_of::<u32>()];
    let start = words.as_ptr().align_offset(align_of::<u32>());
    copy(&mut words[start..start + len])
}

as_raw!(DeviceMemory: ibv_dm, 0.raw);

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory")
            .field("len", &self.0.len)
            .field("device", &self.0.context.device_name())
            .finish()
    }
}
