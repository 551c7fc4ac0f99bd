//! The initiator: a transport of queue pairs, and the destinations of its requests.

#![allow(unsafe_code)]

use std::fmt;

use rdma_sys::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
    IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM, MLX5DV_DCTYPE_DCI,
    MLX5DV_QP_INIT_ATTR_MASK_DC, MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS, ibv_context, ibv_qp,
    ibv_qp_ex, ibv_qp_init_attr_ex, ibv_send_wr, mlx5dv_create_qp, mlx5dv_dci_streams,
    mlx5dv_qp_ex_from_ibv_qp_ex, mlx5dv_qp_init_attr, mlx5dv_wr_set_dc_addr,
};

use crate::cq::CompletionQueue;
use crate::error::Result;
use crate::numbers::Qpn;
use crate::pd::ProtectionDomain;
use crate::qp::{Parts, QpOptions, QueuePair, RcPath};
use crate::transport::private::Sealed;
use crate::transport::{DatagramTransport, DriverOptions, LogStreams, SendTransport, Transport};
use crate::wr::{
    Address, CompareSwap, FetchAdd, HeldAddress, Operation, RdmaRead, RdmaWrite, RdmaWriteWithImm,
    ReadPayload, Send, SendPayload, SendWithImm, To,
};

/// Initiator of the dynamically connected transport (DC): reliable requests to any number of
/// [targets](super::DcTarget).
///
/// It has the operations of [`Rc`](crate::Rc) except memory windows, and each request names its
/// [destination](DcDestination). Requests complete in the order in which they were posted. It
/// cannot receive. [`classic_only`](QpOptions::classic_only) has no effect.
///
/// # Example
/// ```no_run
/// use ibverbs::{AhAttr, CqOptions, Endpoint, Mtu, QpOptions, RcPath, RemoteMemory, wr};
/// use ibverbs::dc::{DcDestination, DcKey};
/// # fn f(target: Endpoint, remote: RemoteMemory) -> ibverbs::Result<()> {
/// let context = ibverbs::Device::by_name("mlx5_0")?.open()?;
/// let (pd, cq) = (context.alloc_pd()?, context.create_cq(CqOptions::default())?);
/// let gid = context.gids(1)?[0];
/// let mut qp = pd.create_dc_qp(&cq, QpOptions::default())?;
/// qp.start(&RcPath::new(1, gid.index, Mtu::B1024))?;
///
/// let address = pd.create_ah(&AhAttr::for_gid(1, gid.index, target.gid))?;
/// let address = qp.hold_address(&address)?;
/// let there = DcDestination { address, qpn: target.qpn, key: DcKey(0x1234) };
/// qp.post_send(wr::send(wr::Inline(b"hello")).to(there))?;
/// qp.post_send(wr::read(pd.buf(4096)?, remote).to(there))?;
/// # Ok(()) }
/// ```
#[doc(alias = "mlx5dv_create_qp")]
#[derive(Clone, Copy, Debug)]
pub struct Dc;

impl Sealed for Dc {}

impl SendTransport for Dc {
    const TRANSPORT: Transport = Transport::DcInitiator;
    const SEND_OPS: u64 = IBV_QP_EX_WITH_SEND as u64
        | IBV_QP_EX_WITH_SEND_WITH_IMM as u64
        | IBV_QP_EX_WITH_RDMA_WRITE as u64
        | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM as u64
        | IBV_QP_EX_WITH_RDMA_READ as u64;
    const EXTRA_OPS: u64 =
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP as u64 | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD as u64;
    const CLASSIC: bool = false;
    const CREATE: &str = "mlx5dv_create_qp";

    unsafe fn create(
        context: *mut ibv_context,
        attr: &mut ibv_qp_init_attr_ex,
        _: DriverOptions,
    ) -> *mut ibv_qp {
        // SAFETY: guaranteed by the caller.
        unsafe { create(context, attr, None) }
    }
}

impl DatagramTransport for Dc {}

/// Creates an initiator.
///
/// # Safety
/// The context is alive. The attributes are valid, and so are their pointers.
pub(super) unsafe fn create(
    context: *mut ibv_context,
    attr: &mut ibv_qp_init_attr_ex,
    streams: Option<LogStreams>,
) -> *mut ibv_qp {
    // Nothing is received, but the kernel's driver needs both queues.
    attr.recv_cq = attr.send_cq;
    let mut driver = mlx5dv_qp_init_attr {
        comp_mask: MLX5DV_QP_INIT_ATTR_MASK_DC.into(),
        ..Default::default()
    };
    driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
    if let Some(LogStreams {
        concurrent,
        errored,
    }) = streams
    {
        driver.comp_mask |= u64::from(MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS);
        driver.dc_init_attr.__bindgen_anon_1.dci_streams = mlx5dv_dci_streams {
            log_num_concurent: concurrent,
            log_num_errored: errored,
        };
    }
    // SAFETY: guaranteed by the caller; libmlx5 accepts contexts of all providers.
    unsafe { mlx5dv_create_qp(context, attr, &raw mut driver) }
}

/// The access key of a [`DcTarget`](super::DcTarget). A target only accepts requests with its key.
///
/// # Example
/// ```no_run
/// use ibverbs::{CompletionQueue, SharedReceiveQueue, dc::DcKey};
/// # fn f(cq: &CompletionQueue, srq: &SharedReceiveQueue) -> ibverbs::Result<()> {
/// let target = srq.pd().create_dc_target(cq, srq, DcKey(0x1234))?;
/// # Ok(()) }
/// ```
#[doc(alias = "mlx5dv_create_qp")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DcKey(pub u64);

/// Hides the key, which grants access to memory.
impl fmt::Debug for DcKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DcKey(..)")
    }
}

/// The destination of a request of a [`Dc`] queue pair: a port, a target there and its key.
///
/// # Example
/// ```no_run
/// use ibverbs::{HeldAddress, QueuePair, Qpn, dc::{Dc, DcDestination, DcKey}, wr};
/// # fn f(qp: &mut QueuePair<Dc>, address: HeldAddress, target: Qpn) -> ibverbs::Result<()> {
/// let destination = DcDestination { address, qpn: target, key: DcKey(0x1234) };
/// qp.post_send(wr::send(wr::Inline(b"hello")).to(destination))?;
/// # Ok(()) }
/// ```
#[doc(alias = "mlx5dv_wr_set_dc_addr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcDestination {
    /// Address of the port, held by the sending queue pair.
    pub address: HeldAddress,
    /// Number of the target ([`DcTarget::qp_num`](super::DcTarget::qp_num)).
    pub qpn: Qpn,
    /// Access key of the target.
    pub key: DcKey,
}

impl Address for DcDestination {
    #[inline]
    fn held(self) -> Option<HeldAddress> {
        Some(self.address)
    }

    /// Does nothing: the queue pairs have extended verbs only.
    fn classic(self, _: &mut ibv_send_wr) {}

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        // SAFETY: guaranteed by the caller: `qp` was created for DC destinations, by libmlx5.
        unsafe {
            let qp = mlx5dv_qp_ex_from_ibv_qp_ex(qp);
            mlx5dv_wr_set_dc_addr(qp, self.address.as_ptr(), self.qpn.0, self.key.0);
        }
    }
}

type Target<O> = To<O, DcDestination>;

impl<P: SendPayload> Operation<Dc, P> for Target<Send> {}
impl<P: SendPayload> Operation<Dc, P> for Target<SendWithImm> {}
impl<P: SendPayload> Operation<Dc, P> for Target<RdmaWrite> {}
impl<P: SendPayload> Operation<Dc, P> for Target<RdmaWriteWithImm> {}
impl<P: ReadPayload> Operation<Dc, P> for Target<RdmaRead> {}
impl<P: ReadPayload> Operation<Dc, P> for Target<CompareSwap> {}
impl<P: ReadPayload> Operation<Dc, P> for Target<FetchAdd> {}

impl ProtectionDomain {
    /// Creates an initiator of the dynamically connected transport, in state RESET. The receive
    /// sizes of `options` are ignored.
    ///
    /// # Errors
    /// Same as [`create_qp`](Self::create_qp), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the device has no DC.
    #[doc(alias = "mlx5dv_create_qp")]
    pub fn create_dc_qp(
        &self,
        send_cq: &CompletionQueue,
        options: QpOptions,
    ) -> Result<QueuePair<Dc>> {
        let parts = Parts {
            pd: self,
            send_cq,
            recv_cq: None,
            srq: None,
            parent: None,
            streams: None,
        };
        QueuePair::create(&parts, options)
    }
}

impl QueuePair<Dc> {
    /// Moves the queue pair from RESET through INIT and RTR to RTS. It can then send to every
    /// target. The path sets the port, the MTU, the timeouts, the retries and the number of reads
    /// in flight for all destinations.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the queue pair is in another
    /// state or the port does not exist.
    #[doc(alias = "ibv_modify_qp")]
    pub fn start(&mut self, path: &RcPath) -> Result<()> {
        self.handle().start_dc(path)
    }
}
