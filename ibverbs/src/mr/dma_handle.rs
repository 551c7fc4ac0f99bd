//! DMA handles: hints for the PCIe transactions that access a memory region.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{
    IBV_DMAH_INIT_ATTR_MASK_CPU_ID, IBV_DMAH_INIT_ATTR_MASK_PH,
    IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE, IBV_TPH_MEM_TYPE_PM, IBV_TPH_MEM_TYPE_VM, ibv_alloc_dmah,
    ibv_dealloc_dmah, ibv_dmah, ibv_dmah_init_attr,
};
use rdma_types::c_value;

use crate::convert::non_null;
use crate::device::Context;
use crate::error::Result;
use crate::raw::{AsRaw, as_raw};

c_value! {
    /// The processing hint of PCIe transactions: the expected accesses to the memory.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("mlx5_0")?.open()?;
    /// use ibverbs::mr::ProcessingHint;
    /// let handle = context.alloc_dma_handle(ProcessingHint::TARGET, None)?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_alloc_dmah(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_alloc_dmah.3.md);
    /// PCI Express Base Specification 6.2, 2.2.7.1.1
    #[doc(alias = "ibv_alloc_dmah")]
    pub struct ProcessingHint(u8) {
        /// The host and the device read and write the memory often.
        BIDIRECTIONAL = 0 => "bidirectional",
        /// The device reads and writes it often.
        REQUESTER = 1 => "requester",
        /// The host reads and writes it often.
        TARGET = 2 => "target",
        /// The host reads and writes it often, and has priority.
        TARGET_WITH_PRIORITY = 3 => "target with priority",
    }
}

/// The processor in whose cache the device should place data.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("mlx5_0")?.open()?;
/// use ibverbs::mr::{ProcessingHint, SteeringTarget};
/// let target = SteeringTarget { cpu: 4, persistent: false };
/// let handle = context.alloc_dma_handle(ProcessingHint::TARGET, Some(target))?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_alloc_dmah(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_alloc_dmah.3.md)
#[doc(alias = "ibv_alloc_dmah")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SteeringTarget {
    /// Number of the processor. The calling thread must be allowed to run on it.
    pub cpu: u32,
    /// `true` if the memory is persistent.
    pub persistent: bool,
}

/// Hints for the PCIe transactions of memory regions that are registered with it
/// ([`MemoryOptions::dma_handle`](crate::MemoryOptions::dma_handle)). Clones refer to the same
/// handle.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("mlx5_0")?.open()?;
/// use ibverbs::{MemoryOptions, mr::ProcessingHint};
/// let handle = context.alloc_dma_handle(ProcessingHint::TARGET, None)?;
/// let options = MemoryOptions::new().dma_handle(&handle);
/// let pool = context.alloc_pd()?.pool_with(64, 4096, options)?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_alloc_dmah(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_alloc_dmah.3.md)
#[doc(alias = "ibv_alloc_dmah")]
#[derive(Clone)]
pub struct DmaHandle(Arc<AllocatedHandle>);

struct AllocatedHandle {
    raw: NonNull<ibv_dmah>,
    context: Context,
}

// SAFETY: a handle has no state in user space, and the libibverbs functions on it are thread-safe.
unsafe impl Send for AllocatedHandle {}
// SAFETY: as for Send.
unsafe impl Sync for AllocatedHandle {}

impl Drop for AllocatedHandle {
    fn drop(&mut self) {
        // SAFETY: this is the last reference: each registration with the handle holds one.
        if unsafe { ibv_dealloc_dmah(self.raw.as_ptr()) } != 0 {
            crate::leak::with_parent(&self.context);
        }
    }
}

impl Context {
    /// Allocates a DMA handle. With a target, the device places data in the cache of a processor.
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the device, the kernel or the
    ///   installed rdma-core (59 or newer) has no DMA handles.
    /// - [`ErrorKind::PermissionDenied`](crate::ErrorKind::PermissionDenied) if the thread may not
    ///   run on the processor.
    ///
    /// # References
    /// [`ibv_alloc_dmah(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_alloc_dmah.3.md)
    #[doc(alias = "ibv_alloc_dmah")]
    pub fn alloc_dma_handle(
        &self,
        hint: ProcessingHint,
        target: Option<SteeringTarget>,
    ) -> Result<DmaHandle> {
        let mut attr = ibv_dmah_init_attr {
            comp_mask: IBV_DMAH_INIT_ATTR_MASK_PH,
            ph: hint.0,
            ..Default::default()
        };
        if let Some(target) = target {
            attr.comp_mask |= IBV_DMAH_INIT_ATTR_MASK_CPU_ID | IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE;
            attr.cpu_id = target.cpu;
            let kind = if target.persistent {
                IBV_TPH_MEM_TYPE_PM
            } else {
                IBV_TPH_MEM_TYPE_VM
            };
            attr.tph_mem_type = kind.to_le_bytes()[0];
        }
        let what = || format!("{hint}, {target:?} on {}", self.device_name());
        let raw = non_null("ibv_alloc_dmah", what, || {
            // SAFETY: the context is open, and the attributes are valid during the call.
            unsafe { ibv_alloc_dmah(self.as_raw(), &raw mut attr) }
        })?;
        Ok(DmaHandle(Arc::new(AllocatedHandle {
            raw,
            context: self.clone(),
        })))
    }
}

impl DmaHandle {
    /// Returns the open device.
    pub fn context(&self) -> &Context {
        &self.0.context
    }
}

as_raw!(DmaHandle: ibv_dmah, 0.raw);

impl fmt::Debug for DmaHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaHandle")
            .field("device", &self.0.context.device_name())
            .finish()
    }
}
