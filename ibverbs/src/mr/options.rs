//! Options for allocating and registering memory.

use rdma_types::setters;

use super::access::RawAccess;
use super::caller::CallerMemory;
use super::dma_handle::DmaHandle;
use super::huge_pages::HugePageSize;
use crate::error::{Error, ErrorKind, Result};

/// Options for allocating and registering memory.
///
/// Used by [`pool_with`](crate::ProtectionDomain::pool_with),
/// [`shared_with`](crate::ProtectionDomain::shared_with) and
/// [`sink_with`](crate::ProtectionDomain::sink_with).
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// use ibverbs::{
///     MemoryOptions,
///     mr::{Backing, HugePageSize},
/// };
/// let options = MemoryOptions::new().backing(Backing::HugePages(HugePageSize::Mib2));
/// let pool = pd.pool_with(512, 4096, options)?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_reg_mr")]
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct MemoryOptions {
    /// The source of the memory. Default: [`Backing::Heap`].
    pub backing: Backing,
    /// Pages the memory in when the device accesses it, instead of pinning it
    /// (`IBV_ACCESS_ON_DEMAND`). The device must support it (`odp_caps` of `ibv_devinfo -v`).
    /// Soft-RoCE is refused, because its implementation damages memory. Default: `false`.
    pub on_demand: bool,
    /// Allows the device's writes to become visible in any order before the completion
    /// (`IBV_ACCESS_RELAXED_ORDERING`). Devices that do not support it ignore it. Default:
    /// `false`.
    pub relaxed_ordering: bool,
    /// Makes peers address the memory from 0 instead of by its address in this process. Only valid
    /// for a [`SharedRegion`](crate::SharedRegion), and to use it in requests, the queue needs
    /// [`device_addresses`](crate::QpOptions::device_addresses). Default: `false`.
    pub zero_based: bool,
    /// Hints for the PCIe transactions of the region. Needs rdma-core 59 or newer. Default: `None`.
    pub dma_handle: Option<DmaHandle>,
}

/// The source of memory. All memory is zeroed, except the caller's.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// use ibverbs::{MemoryOptions, mr::Backing};
/// let sink = pd.sink_with(
///     1 << 20,
///     MemoryOptions::new().backing(Backing::Pages),
/// )?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`mmap(2)`](https://man7.org/linux/man-pages/man2/mmap.2.html)
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Backing {
    /// The program's allocator, aligned to a page.
    #[default]
    Heap,
    /// Pages from the kernel (`mmap`), returned to the kernel when the memory is dropped.
    Pages,
    /// Huge pages, which need fewer entries in the device's translation tables. The administrator
    /// must have reserved them.
    HugePages(HugePageSize),
    /// Memory provided by the caller.
    Caller(CallerMemory),
    /// Memory that the provider of the device allocates (`ibv_alloc_buf`), for example because the
    /// device cannot access other memory of a confidential virtual machine. Needs rdma-core 64 or
    /// newer.
    Provider,
}

setters! {
    MemoryOptions {
        on_demand: bool,
        relaxed_ordering: bool,
        zero_based: bool,
    }
}

impl MemoryOptions {
    /// Returns the default options.
    pub const fn new() -> Self {
        Self {
            backing: Backing::Heap,
            on_demand: false,
            relaxed_ordering: false,
            zero_based: false,
            dma_handle: None,
        }
    }

    /// Sets [`backing`](#structfield.backing).
    #[must_use = "setters return the changed options"]
    pub fn backing(mut self, backing: Backing) -> Self {
        self.backing = backing;
        self
    }

    /// Sets [`dma_handle`](#structfield.dma_handle).
    #[must_use = "setters return the changed options"]
    pub fn dma_handle(mut self, handle: &DmaHandle) -> Self {
        self.dma_handle = Some(handle.clone());
        self
    }

    /// Rejects `zero_based` for memory that peers do not access.
    pub(crate) fn reject_zero_based(&self, what: &'static str) -> Result<()> {
        if self.zero_based {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                what,
                "zero_based is only valid for a SharedRegion",
            )
            .with_help("set MemoryOptions::zero_based to false"));
        }
        Ok(())
    }

    /// Returns the flags to combine with the access rights.
    pub(crate) fn flags(&self) -> RawAccess {
        let mut flags = RawAccess::empty();
        flags.set(RawAccess::ON_DEMAND, self.on_demand);
        flags.set(RawAccess::RELAXED_ORDERING, self.relaxed_ordering);
        flags
    }
}
