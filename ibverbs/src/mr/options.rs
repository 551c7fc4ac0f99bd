//! How memory is obtained and registered.

use super::access::RawAccess;
use super::caller::CallerMemory;
use super::huge::HugePageSize;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;

/// How memory is obtained and registered: for [`pool_with`](crate::ProtectionDomain::pool_with),
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
/// let options = MemoryOptions {
///     backing: Backing::HugePages(HugePageSize::Mib2),
///     ..MemoryOptions::default()
/// };
/// let pool = pd.pool_with(512, 4096, options)?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
#[derive(Debug, Default)]
pub struct MemoryOptions {
    /// Where the memory comes from.
    pub backing: Backing,
    /// Pages are not pinned but brought in when the device needs them (`IBV_ACCESS_ON_DEMAND`),
    /// where the device can (`odp_caps` of `ibv_devinfo -v`).
    pub on_demand: bool,
    /// The device's writes may become visible in another order than they were made, up to the
    /// completion that ends them (`IBV_ACCESS_RELAXED_ORDERING`). A device that cannot ignores
    /// it.
    pub relaxed_ordering: bool,
    /// Peers address the memory from 0 on rather than by its address in this process. For a
    /// [`SharedRegion`](crate::SharedRegion) only.
    pub zero_based: bool,
}

/// Where memory comes from. It is zeroed, but for the caller's own, which stays as it is.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// use ibverbs::{MemoryOptions, mr::Backing};
/// let sink = pd.sink_with(
///     1 << 20,
///     MemoryOptions {
///         backing: Backing::Pages,
///         ..MemoryOptions::default()
///     },
/// )?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`mmap(2)`](https://man7.org/linux/man-pages/man2/mmap.2.html)
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Backing {
    /// The allocator of the program, at a page boundary.
    #[default]
    Heap,
    /// Pages of its own from the kernel (`mmap`), returned to it when the memory is dropped.
    Pages,
    /// Huge pages, which the administrator has set aside: fewer entries in the device's translation
    /// tables.
    HugePages(HugePageSize),
    /// Memory of the caller's.
    Caller(CallerMemory),
}

impl MemoryOptions {
    /// Refuses an address base that only peers have a use for.
    pub(crate) fn by_address(&self, what: &'static str) -> Result<()> {
        if self.zero_based {
            return Err(
                Error::new(ErrorKind::InvalidInput, what, "zero_based").with_hint(
                    "only a SharedRegion, which peers address, can be addressed from 0 on",
                ),
            );
        }
        Ok(())
    }

    /// The flags that go with the access asked for.
    pub(crate) fn flags(&self) -> RawAccess {
        let mut flags = RawAccess::empty();
        flags.set(RawAccess::ON_DEMAND, self.on_demand);
        flags.set(RawAccess::RELAXED_ORDERING, self.relaxed_ordering);
        flags
    }
}
