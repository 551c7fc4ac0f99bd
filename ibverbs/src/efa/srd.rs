//! Scalable reliable datagrams.

#![allow(unsafe_code)]

use rdma_sys::{
    EFADV_QP_DRIVER_TYPE_SRD, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM,
    IBV_SEND_SIGNALED, efadv_create_qp_ex, efadv_qp_init_attr, ibv_context, ibv_qp,
    ibv_qp_init_attr_ex,
};

use super::query::{EfaCaps, query, size_of_struct};
use crate::transport::private::Sealed;
use crate::transport::{
    DatagramTransport, DriverOptions, DuplexTransport, SendTransport, Transport,
};
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
/// use ibverbs::{AhAttr, CqOptions, DatagramAttr, Endpoint, Qkey, QpOptions, RemoteMemory};
/// use ibverbs::{efa::Srd, wr};
/// # fn f(peer: Endpoint, remote: RemoteMemory) -> ibverbs::Result<()> {
/// const QKEY: Qkey = Qkey(0x1111_1111);
/// let context = ibverbs::Device::by_name("rdmap0s31")?.open()?;
/// let (pd, cq) = (context.alloc_pd()?, context.create_cq(CqOptions::default())?);
/// let mut qp = pd.create_qp::<Srd>(&cq, &cq, QpOptions::default())?;
/// qp.start(&DatagramAttr::new(1, QKEY))?;
///
/// let there = qp.destination(&AhAttr::for_gid(1, 0, peer.gid), peer.qpn, QKEY)?;
/// qp.post_send(wr::send(wr::Inline(b"hello")).to(there))?;
/// qp.post_send(wr::read(pd.buf(4096)?, remote).to(there))?;
/// # Ok(()) }
/// ```
#[doc(alias = "efadv_create_qp_ex")]
#[derive(Clone, Copy, Debug)]
pub struct Srd;

const READ: u64 = IBV_QP_EX_WITH_RDMA_READ as u64;
const WRITES: u64 = IBV_QP_EX_WITH_RDMA_WRITE as u64 | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM as u64;

impl Sealed for Srd {}

impl SendTransport for Srd {
    const TRANSPORT: Transport = Transport::Srd;
    const SEND_OPS: u64 = IBV_QP_EX_WITH_SEND as u64 | IBV_QP_EX_WITH_SEND_WITH_IMM as u64;
    const EXTRA_OPS: u64 = READ | WRITES;
    const CLASSIC: bool = false;
    const COMPLETES_IN_ORDER: bool = false;
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

    unsafe fn create(
        context: *mut ibv_context,
        attr: &mut ibv_qp_init_attr_ex,
        _: DriverOptions,
    ) -> *mut ibv_qp {
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
