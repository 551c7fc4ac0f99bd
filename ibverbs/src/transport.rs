//! Transports as types, so that an operation that a transport lacks does not compile.

use rdma_types::c_value;

c_value! {
    /// The type of a queue pair (`enum ibv_qp_type`).
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::QpType;
    /// let segments_datagrams = context.query_device_ex()?.tso.supported_qpts.contains(QpType::UD.0);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_create_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html)
    pub struct QpType(u32) {
        /// Reliable connection: `IBV_QPT_RC`.
        RC = rdma_sys::IBV_QPT_RC => "RC",
        /// Unreliable connection: `IBV_QPT_UC`.
        UC = rdma_sys::IBV_QPT_UC => "UC",
        /// Unreliable datagram: `IBV_QPT_UD`.
        UD = rdma_sys::IBV_QPT_UD => "UD",
        /// Raw packets: `IBV_QPT_RAW_PACKET`.
        RAW_PACKET = rdma_sys::IBV_QPT_RAW_PACKET => "RAW_PACKET",
        /// Sending side of an extended reliable connection: `IBV_QPT_XRC_SEND`.
        XRC_SEND = rdma_sys::IBV_QPT_XRC_SEND => "XRC_SEND",
        /// Receiving side of an extended reliable connection: `IBV_QPT_XRC_RECV`.
        XRC_RECV = rdma_sys::IBV_QPT_XRC_RECV => "XRC_RECV",
    }
}

mod private {
    pub trait Sealed {}
    impl Sealed for super::Rc {}
    impl Sealed for super::Uc {}
    impl Sealed for super::Ud {}
    impl Sealed for super::XrcSend {}
    impl Sealed for super::RawPacket {}
}

/// The transport of a [`QueuePair`](crate::QueuePair). Every transport can send.
///
/// # Example
/// This function accepts queue pairs of all transports:
/// ```no_run
/// use ibverbs::{QueuePair, SendTransport};
/// fn idle<T: SendTransport>(qps: &[QueuePair<T>]) -> usize {
///     qps.iter().filter(|qp| qp.is_idle()).count()
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transport",
    label = "expected `Rc`, `Uc`, `Ud`, `RawPacket` or `xrc::XrcSend` of this crate",
    note = "a `QueuePair<Rc>` is a reliable connection: `use ibverbs::Rc`, which is not `std::rc::Rc`"
)]
pub trait SendTransport: private::Sealed + 'static {
    /// The queue pair type.
    const QP_TYPE: QpType;
    /// Extended operations that a queue pair requires (`IBV_QP_EX_WITH_*`).
    #[doc(hidden)]
    const SEND_OPS: u64;
    /// Extended operations that a queue pair requests but does not require.
    #[doc(hidden)]
    const EXTRA_OPS: u64 = 0;
}

/// A transport that sends and receives. [`create_qp`](crate::ProtectionDomain::create_qp) creates
/// its queue pairs.
///
/// # Example
/// This function accepts all queue pairs that can receive:
/// ```no_run
/// use ibverbs::{DuplexTransport, QueuePair, wr};
/// fn receive<T: DuplexTransport>(qp: &mut QueuePair<T>, size: usize) -> ibverbs::Result<()> {
///     let buf = qp.pd().buf(size)?;
///     Ok(qp.post_recv(wr::recv(buf))?)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "a queue pair of transport `{Self}` cannot receive",
    label = "expected `Rc`, `Uc`, `Ud` or `RawPacket`",
    note = "an `XrcSend` queue pair only sends: create it with `create_xrc_send_qp`, and receive with a `SharedReceiveQueue<Xrc>` at the peer"
)]
pub trait DuplexTransport: SendTransport {}

/// A transport with one peer. Its queue pairs go through RTR to RTS to connect.
///
/// # Example
/// This function accepts all queue pairs that connect to a peer:
/// ```no_run
/// use ibverbs::{ConnectedTransport, Endpoint, QueuePair, RcPath};
/// fn connect<T: ConnectedTransport>(
///     qp: &mut QueuePair<T>,
///     path: &RcPath,
///     peer: &Endpoint,
/// ) -> ibverbs::Result<()> {
///     qp.init(path)?;
///     qp.connect(path, peer)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "a queue pair of transport `{Self}` does not connect to a peer",
    label = "expected `Rc`, `Uc` or `xrc::XrcSend`",
    note = "a queue pair of `Ud` or `RawPacket` becomes ready with `start`; each request of a `Ud` queue pair names its destination: `wr::send_to`"
)]
pub trait ConnectedTransport: SendTransport {}

/// A transport with one peer that sends and receives ([`Rc`], [`Uc`]).
///
/// # Example
/// This function accepts both kinds of connections:
/// ```no_run
/// use ibverbs::{ConnectedDuplexTransport, QueuePair, wr};
/// fn greet<T: ConnectedDuplexTransport>(qp: &mut QueuePair<T>) -> ibverbs::Result<()> {
///     Ok(qp.post_send(wr::send(wr::Inline(b"hello")))?)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "a queue pair of transport `{Self}` does not have this operation",
    label = "expected `Rc` or `Uc`",
    note = "a `Ud` queue pair sends with `wr::send_to` and `wr::send_to_with_imm` only",
    note = "a request of an `XrcSend` queue pair names the shared receive queue of the peer: `wr::send(…).for_srq(srq_num)`"
)]
pub trait ConnectedDuplexTransport: DuplexTransport + ConnectedTransport {}

const MESSAGES: u64 =
    rdma_sys::IBV_QP_EX_WITH_SEND as u64 | rdma_sys::IBV_QP_EX_WITH_SEND_WITH_IMM as u64;
const WINDOWS: u64 = rdma_sys::IBV_QP_EX_WITH_BIND_MW as u64
    | rdma_sys::IBV_QP_EX_WITH_LOCAL_INV as u64
    | rdma_sys::IBV_QP_EX_WITH_SEND_WITH_INV as u64;
const WRITES: u64 = rdma_sys::IBV_QP_EX_WITH_RDMA_WRITE as u64
    | rdma_sys::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM as u64;
const FETCHES: u64 = rdma_sys::IBV_QP_EX_WITH_RDMA_READ as u64
    | rdma_sys::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP as u64
    | rdma_sys::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD as u64;

/// Reliable connection: ordered, acknowledged, one peer.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(ibverbs::CqOptions::default())?);
/// use ibverbs::{QpOptions, QueuePair, Rc};
/// let qp: QueuePair<Rc> = pd.create_qp(&cq, &cq, QpOptions::default())?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_create_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html); IBA 9.7
#[derive(Clone, Copy, Debug)]
pub struct Rc;

impl SendTransport for Rc {
    const QP_TYPE: QpType = QpType::RC;
    const SEND_OPS: u64 = MESSAGES | WRITES | FETCHES;
    const EXTRA_OPS: u64 = WINDOWS;
}

impl DuplexTransport for Rc {}
impl ConnectedTransport for Rc {}
impl ConnectedDuplexTransport for Rc {}

/// Unreliable connection: ordered, not acknowledged, one peer. Losses affect whole messages.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(ibverbs::CqOptions::default())?);
/// use ibverbs::{QpOptions, Uc};
/// let qp = pd.create_qp::<Uc>(&cq, &cq, QpOptions::default())?; // sends and writes, but no reads and atomics
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_create_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html); IBA 9.8
#[derive(Clone, Copy, Debug)]
pub struct Uc;

impl SendTransport for Uc {
    const QP_TYPE: QpType = QpType::UC;
    const SEND_OPS: u64 = MESSAGES | WRITES;
    const EXTRA_OPS: u64 = WINDOWS;
}

impl DuplexTransport for Uc {}
impl ConnectedTransport for Uc {}
impl ConnectedDuplexTransport for Uc {}

/// Unreliable datagram: messages of one packet, to and from any number of peers.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(ibverbs::CqOptions::default())?);
/// use ibverbs::{Psn, Qkey, QpOptions, Ud};
/// let mut qp = pd.create_qp::<Ud>(&cq, &cq, QpOptions::default())?;
/// qp.start(1, 0, Qkey(0x1111_1111), Psn(0))?; // each request names its destination
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_create_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html); IBA 9.8
#[derive(Clone, Copy, Debug)]
pub struct Ud;

impl SendTransport for Ud {
    const QP_TYPE: QpType = QpType::UD;
    const SEND_OPS: u64 = MESSAGES;
}

impl DuplexTransport for Ud {}

/// Sending side of an extended reliable connection (XRC).
///
/// It works like [`Rc`], except that each request names the shared receive queue of the peer
/// ([`for_srq`](crate::wr::SendRequest::for_srq)), and that it cannot receive. See
/// [`XrcDomain`](crate::xrc::XrcDomain).
///
/// # Example
/// ```no_run
/// use ibverbs::{Endpoint, QueuePair, RcPath, wr, xrc::{SrqNum, XrcSend}};
/// # fn f(mut qp: QueuePair<XrcSend>, path: RcPath, peer: Endpoint, store: SrqNum) -> ibverbs::Result<()> {
/// qp.init(&path)?;
/// qp.connect(&path, &peer)?;
/// qp.post_send(wr::send(wr::Inline(b"hello")).for_srq(store))?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_create_qp_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html); IBA annex A14
#[derive(Clone, Copy, Debug)]
pub struct XrcSend;

impl SendTransport for XrcSend {
    const QP_TYPE: QpType = QpType::XRC_SEND;
    const SEND_OPS: u64 = Rc::SEND_OPS;
    const EXTRA_OPS: u64 = WINDOWS;
}

impl ConnectedTransport for XrcSend {}

/// Raw packets: whole Ethernet frames, including headers.
///
/// [Flow rules](crate::QueuePair::create_flow) select the packets to receive. The process needs the
/// capability `CAP_NET_RAW`.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(ibverbs::CqOptions::default())?);
/// use ibverbs::{QpOptions, RawPacket, flow::{FlowRule, FlowSpec}};
/// let mut qp = pd.create_qp::<RawPacket>(&cq, &cq, QpOptions::default())?;
/// qp.start(1)?;
/// qp.create_flow(&FlowRule::new(1, [FlowSpec::dst_udp_port(9000)]))?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_create_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html),
/// [`ibv_create_flow(3)`](https://man7.org/linux/man-pages/man3/ibv_create_flow.3.html)
#[derive(Clone, Copy, Debug)]
pub struct RawPacket;

impl SendTransport for RawPacket {
    const QP_TYPE: QpType = QpType::RAW_PACKET;
    const SEND_OPS: u64 = rdma_sys::IBV_QP_EX_WITH_SEND as u64;
}

impl DuplexTransport for RawPacket {}
