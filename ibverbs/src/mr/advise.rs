//! Prefetch advice for memory registered for on-demand paging.

#![allow(unsafe_code)]

use rdma_sys::{IBV_ADVISE_MR_FLAG_FLUSH, ibv_advise_mr, ibv_sge};

use super::access::RawAccess;
use super::shared::SharedRegion;
use crate::convert::zero_or_errno;
use crate::error::{Error, ErrorKind, Result};
use crate::raw::AsRaw;
use rdma_types::c_value;

c_value! {
    /// Advice about memory (`enum ibv_advise_mr_advice`).
    ///
    /// # Example
    /// ```no_run
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// use ibverbs::{AccessFlags, MemoryOptions, mr::Advice};
    /// let options = MemoryOptions::new().on_demand(true);
    /// let region = pd.shared_with(1 << 30, AccessFlags::REMOTE_READ, options)?;
    /// region.advise(Advice::PREFETCH, true)?; // wait until the pages are present
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_advise_mr")]
    pub struct Advice(u32) {
        /// Page the memory in for reading.
        PREFETCH = rdma_sys::IBV_ADVISE_MR_ADVICE_PREFETCH => "prefetch",
        /// Page the memory in for writing.
        PREFETCH_WRITE = rdma_sys::IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => "prefetch for writing",
        /// Map pages that are already present, without page faults.
        PREFETCH_NO_FAULT = rdma_sys::IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => "prefetch without faults",
    }
}

impl SharedRegion {
    /// Gives the kernel advice about the region or [slice](Self::slice), up to the 4 GiB of a
    /// scatter entry.
    ///
    /// The memory must be registered for [on-demand paging](crate::MemoryOptions::on_demand). If
    /// `wait` is `true`, the call returns after the advice was carried out.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the memory was not registered for on-demand paging, or the
    /// device does not support advice.
    #[doc(alias = "ibv_advise_mr")]
    pub fn advise(&self, advice: Advice, wait: bool) -> Result<()> {
        // rxe does not check it, and uses the kernel's record of other memory as one of on-demand
        // memory (fault 47 of docs/drivers.md).
        let access = self.region().raw_access(self.access());
        if !access.contains(RawAccess::ON_DEMAND) {
            let what = "the memory is not registered for on-demand paging";
            return Err(Error::new(ErrorKind::Unsupported, "ibv_advise_mr", what)
                .with_help("register it with MemoryOptions::on_demand"));
        }
        let mut sge: ibv_sge = self.sge();
        let flags = if wait { IBV_ADVISE_MR_FLAG_FLUSH } else { 0 };
        // SAFETY: the domain is alive, and the entry is valid during the call and describes a live
        // region.
        let returned =
            unsafe { ibv_advise_mr(self.pd().as_raw(), advice.0, flags, &raw mut sge, 1) };
        let what = || {
            format!(
                "{advice} of {} bytes on {}",
                self.len(),
                self.pd().context().device_name()
            )
        };
        zero_or_errno("ibv_advise_mr", what, returned)
    }
}
