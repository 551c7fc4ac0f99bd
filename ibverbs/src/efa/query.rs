//! Limits and capabilities of EFA devices, and numbers of their address handles.

#![allow(unsafe_code)]

use bitflags::bitflags;
use rdma_sys::{
    EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID, EFADV_DEVICE_ATTR_CAPS_RDMA_READ,
    EFADV_DEVICE_ATTR_CAPS_RNR_RETRY, efadv_ah_attr, efadv_device_attr, efadv_query_ah,
    efadv_query_device, ibv_context,
};

use crate::ah::AddressHandle;
use crate::convert::zero_or_errno;
use crate::device::Context;
use crate::error::Result;
use crate::raw::AsRaw;

bitflags! {
    /// Capabilities of an EFA device (`EFADV_DEVICE_ATTR_CAPS_*`). Unknown bits are kept.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rdmap0s31")?.open()?;
    /// use ibverbs::efa::EfaCaps;
    /// let reads = context.query_efa()?.device_caps.contains(EfaCaps::RDMA_READ);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "efadv_query_device")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EfaCaps: u32 {
        /// [`Srd`](super::Srd) queue pairs can read memory of the peer.
        const RDMA_READ = EFADV_DEVICE_ATTR_CAPS_RDMA_READ;
        /// The number of retries after a receiver-not-ready response can be set
        /// ([`QpChange::rnr_retry`](crate::qp::QpChange)).
        const RNR_RETRY = EFADV_DEVICE_ATTR_CAPS_RNR_RETRY;
        /// Completions can have the GID of the sender ([`SourceGid`](super::SourceGid)).
        const CQ_WITH_SGID = EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID;
        /// [`Srd`](super::Srd) queue pairs can write memory of the peer. Needs libefa of rdma-core 47 or newer.
        const RDMA_WRITE = 1 << 3;
        /// There are completion counters ([`counter`](crate::counter)). Needs rdma-core 65.
        const COMP_CNTR = 1 << 6;
        const _ = !0;
    }
}

/// Limits and capabilities of an EFA device (`struct efadv_device_attr`).
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rdmap0s31")?.open()?;
/// use ibverbs::QpOptions;
/// let efa = context.query_efa()?;
/// let options = QpOptions::new()
///     .max_send_wr(efa.max_sq_wr)
///     .max_inline_data(efa.inline_buf_size.into());
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "efadv_query_device")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EfaAttr {
    /// Maximum number of requests in a send queue.
    pub max_sq_wr: u32,
    /// Maximum number of requests in a receive queue.
    pub max_rq_wr: u32,
    /// Maximum number of gather entries of a send. A read has at most
    /// [`DeviceAttr::max_sge_rd`](crate::DeviceAttr) entries.
    pub max_sq_sge: u16,
    /// Maximum number of scatter entries of a receive.
    pub max_rq_sge: u16,
    /// Maximum length of inline data in bytes.
    pub inline_buf_size: u16,
    /// Capabilities.
    pub device_caps: EfaCaps,
    /// Maximum length of an RDMA read or write in bytes; 0 if the device has none.
    pub max_rdma_size: u32,
}

/// Returns the size of a structure, as the provider takes it.
#[allow(clippy::cast_possible_truncation, reason = "structures are small")]
pub(super) fn size_of_struct<T>(_: &T) -> u32 {
    size_of::<T>() as u32
}

/// Queries a device.
///
/// # Safety
/// The context is alive.
pub(super) unsafe fn query(context: *mut ibv_context) -> Result<efadv_device_attr, i32> {
    let mut attr = efadv_device_attr::default();
    let size = size_of_struct(&attr);
    // SAFETY: the context is alive; libefa accepts contexts of all providers. The size is that of
    // the structure.
    match unsafe { efadv_query_device(context, &raw mut attr, size) } {
        0 => Ok(attr),
        returned => Err(returned),
    }
}

impl Context {
    /// Queries the limits and capabilities that only EFA devices have.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) on other devices.
    #[doc(alias = "efadv_query_device")]
    pub fn query_efa(&self) -> Result<EfaAttr> {
        // SAFETY: the context is alive.
        let queried = unsafe { query(self.as_raw()) };
        let what = || self.device_name().into();
        let raw = queried.or_else(|returned| {
            zero_or_errno("efadv_query_device", what, returned)
                .map(|()| efadv_device_attr::default())
        })?;
        Ok(EfaAttr {
            max_sq_wr: raw.max_sq_wr,
            max_rq_wr: raw.max_rq_wr,
            max_sq_sge: raw.max_sq_sge,
            max_rq_sge: raw.max_rq_sge,
            inline_buf_size: raw.inline_buf_size,
            device_caps: EfaCaps::from_bits_retain(raw.device_caps),
            max_rdma_size: raw.max_rdma_size,
        })
    }
}

impl AddressHandle {
    /// Returns the number of the address handle on its EFA device. Completions report it as the
    /// [`slid`](crate::UdSource::slid) of the source, or 0xffff if the device has no address handle
    /// of the source.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) on other devices.
    #[doc(alias = "efadv_query_ah")]
    pub fn efa_number(&self) -> Result<u16> {
        let mut attr = efadv_ah_attr::default();
        let size = size_of_struct(&attr);
        // SAFETY: the handle is alive; libefa accepts handles of all providers. The size is that of
        // the structure.
        let returned = unsafe { efadv_query_ah(self.as_raw(), &raw mut attr, size) };
        let what = || self.pd().context().device_name().into();
        zero_or_errno("efadv_query_ah", what, returned)?;
        Ok(attr.ahn)
    }
}
