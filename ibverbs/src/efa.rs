//! The transport and the queries that only EFA has, the adapter of Amazon.
//!
//! This module needs the feature `efa`, which links libefa. [`Srd`] sends reliable datagrams, and
//! [`Context::query_efa`] returns the limits and capabilities of a device.

#![allow(unsafe_code)]

use bitflags::bitflags;
use rdma_sys::{
    EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID, EFADV_DEVICE_ATTR_CAPS_RDMA_READ,
    EFADV_DEVICE_ATTR_CAPS_RNR_RETRY, EFADV_QP_DRIVER_TYPE_SRD, IBV_QP_EX_WITH_RDMA_READ,
    IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND,
    IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_SEND_SIGNALED, efadv_ah_attr, efadv_create_qp_ex,
    efadv_device_attr, efadv_qp_init_attr, efadv_query_ah, efadv_query_device, ibv_context, ibv_qp,
    ibv_qp_init_attr_ex,
};

use crate::ah::AddressHandle;
use crate::convert::zero_or_errno;
use crate::device::Context;
use crate::error::Result;
use crate::raw::AsRaw;
use crate::transport::private::Sealed;
use crate::transport::{DatagramTransport, DuplexTransport, QpKind, SendTransport};
use crate::wr::{
    Operation, RdmaRead, RdmaWrite, RdmaWriteWithImm, ReadPayload, Send, SendPayload, SendWithImm,
    To,
};

/// Scalable reliable datagram (SRD): acknowledged messages to and from any number of peers.
///
/// Each request names its [destination](crate::wr::SendRequest::to). Messages are delivered once,
/// but in any order, and requests complete in any order. Every request has a completion. A queue
/// pair sends and, if the device has it, reads ([`EfaCaps::RDMA_READ`]) and writes
/// ([`EfaCaps::RDMA_WRITE`]) memory of the peer. There are no atomics, no shared receive queues and
/// no fenced requests. A received message begins at the first byte of its buffer.
///
/// # Example
/// ```no_run
/// use ibverbs::{AhAttr, CqOptions, Endpoint, Psn, Qkey, QpOptions, RemoteMemory, efa::Srd};
/// use ibverbs::wr::{self, Destination};
/// # fn f(peer: Endpoint, remote: RemoteMemory) -> ibverbs::Result<()> {
/// const QKEY: Qkey = Qkey(0x1111_1111);
/// let context = ibverbs::Device::by_name("rdmap0s31")?.open()?;
/// let (pd, cq) = (context.alloc_pd()?, context.create_cq(CqOptions::default())?);
/// let mut qp = pd.create_qp::<Srd>(&cq, &cq, QpOptions::default())?;
/// qp.start(1, 0, QKEY, Psn(0))?;
///
/// let address = pd.create_ah(&AhAttr::for_gid(1, 0, peer.gid))?;
/// let address = qp.hold_address(&address)?;
/// let there = Destination { address, qpn: peer.qpn, qkey: QKEY };
/// qp.post_send(wr::send(wr::Inline(b"hello")).to(there))?;
/// qp.post_send(wr::read(pd.buf(4096)?, remote).to(there))?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`efadv_create_qp_ex(3)`](https://man7.org/linux/man-pages/man3/efadv_create_driver_qp.3.html)
#[derive(Clone, Copy, Debug)]
pub struct Srd;

const READ: u64 = IBV_QP_EX_WITH_RDMA_READ as u64;
const WRITES: u64 = IBV_QP_EX_WITH_RDMA_WRITE as u64 | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM as u64;

impl Sealed for Srd {}

impl SendTransport for Srd {
    const KIND: QpKind = QpKind::Srd;
    const SEND_OPS: u64 = IBV_QP_EX_WITH_SEND as u64 | IBV_QP_EX_WITH_SEND_WITH_IMM as u64;
    const EXTRA_OPS: u64 = READ | WRITES;
    const CLASSIC: bool = false;
    const CREATE: &str = "efadv_create_qp_ex";
    // The provider refuses others, and with them the whole batch.
    const FLAGS: u32 = IBV_SEND_SIGNALED;

    unsafe fn extra_ops(context: *mut ibv_context) -> u64 {
        // SAFETY: guaranteed by the caller.
        let Ok(raw) = (unsafe { query(context) }) else {
            return 0;
        };
        let caps = EfaCaps::from_bits_retain(raw.device_caps);
        let ops = |cap, ops| if caps.contains(cap) { ops } else { 0 };
        ops(EfaCaps::RDMA_READ, READ) | ops(EfaCaps::RDMA_WRITE, WRITES)
    }

    unsafe fn create(context: *mut ibv_context, attr: &mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
        let mut driver = efadv_qp_init_attr {
            driver_qp_type: EFADV_QP_DRIVER_TYPE_SRD,
            ..Default::default()
        };
        let size = size_of_struct(&driver);
        // SAFETY: guaranteed by the caller; libefa accepts contexts of all providers. The size is
        // that of the structure.
        unsafe { efadv_create_qp_ex(context, attr, &raw mut driver, size) }
    }
}

impl DuplexTransport for Srd {}
impl DatagramTransport for Srd {}

impl<P: SendPayload> Operation<Srd, P> for To<Send> {}
impl<P: SendPayload> Operation<Srd, P> for To<SendWithImm> {}
impl<P: ReadPayload> Operation<Srd, P> for To<RdmaRead> {}
impl<P: SendPayload> Operation<Srd, P> for To<RdmaWrite> {}
impl<P: SendPayload> Operation<Srd, P> for To<RdmaWriteWithImm> {}

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
    ///
    /// # References
    /// [`efadv_query_device(3)`](https://man7.org/linux/man-pages/man3/efadv_query_device.3.html)
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EfaCaps: u32 {
        /// [`Srd`] queue pairs can read memory of the peer.
        const RDMA_READ = EFADV_DEVICE_ATTR_CAPS_RDMA_READ;
        /// The number of retries after a receiver-not-ready response can be set
        /// ([`QpChange::rnr_retry`](crate::qp::QpChange)).
        const RNR_RETRY = EFADV_DEVICE_ATTR_CAPS_RNR_RETRY;
        /// Completions can have the GID of the sender.
        const CQ_WITH_SGID = EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID;
        /// [`Srd`] queue pairs can write memory of the peer. Needs libefa of rdma-core 47 or newer.
        const RDMA_WRITE = 1 << 3;
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
///
/// # References
/// [`efadv_query_device(3)`](https://man7.org/linux/man-pages/man3/efadv_query_device.3.html)
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
fn size_of_struct<T>(_: &T) -> u32 {
    size_of::<T>() as u32
}

/// Queries a device.
///
/// # Safety
/// The context is alive.
unsafe fn query(context: *mut ibv_context) -> Result<efadv_device_attr, i32> {
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
    ///
    /// # References
    /// [`efadv_query_device(3)`](https://man7.org/linux/man-pages/man3/efadv_query_device.3.html)
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
    ///
    /// # References
    /// [`efadv_query_ah(3)`](https://man7.org/linux/man-pages/man3/efadv_query_ah.3.html)
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
