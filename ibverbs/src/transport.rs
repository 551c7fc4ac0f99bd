//! Transports as types, so that an operation that a transport lacks does not compile.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;

use rdma_sys::{ibv_context, ibv_create_qp_ex, ibv_qp, ibv_qp_init_attr_ex};
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
    #[doc(alias = "ibv_create_qp")]
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
        /// A type that only the provider of the device knows: `IBV_QPT_DRIVER`.
        DRIVER = rdma_sys::IBV_QPT_DRIVER => "DRIVER",
    }
}

/// The kinds of queue pairs. Those of providers share one [`QpType`].
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "some belong to Cargo features")]
pub enum Transport {
    Rc,
    Uc,
    Ud,
    RawPacket,
    XrcSend,
    XrcRecv,
    Srd,
    DcInitiator,
    DcTarget,
}

impl Transport {
    /// Returns the queue pair type of the verbs.
    pub(crate) const fn qp_type(self) -> QpType {
        match self {
            Self::Rc => QpType::RC,
            Self::Uc => QpType::UC,
            Self::Ud => QpType::UD,
            Self::RawPacket => QpType::RAW_PACKET,
            Self::XrcSend => QpType::XRC_SEND,
            Self::XrcRecv => QpType::XRC_RECV,
            Self::Srd | Self::DcInitiator | Self::DcTarget => QpType::DRIVER,
        }
    }

    /// Returns `true` if the source of a received message is known only from its completion.
    pub(crate) const fn receives_datagrams(self) -> bool {
        matches!(self, Self::Ud | Self::Srd)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Srd => f.write_str("SRD"),
            Self::DcInitiator => f.write_str("DC initiator"),
            Self::DcTarget => f.write_str("DC target"),
            _ => self.qp_type().fmt(f),
        }
    }
}

pub(crate) mod private {
    pub trait Sealed {}
    impl Sealed for super::Rc {}
    impl Sealed for super::Uc {}
    impl Sealed for super::Ud {}
    impl Sealed for super::XrcSend {}
    impl Sealed for super::RawPacket {}
}

/// Numbers of streams of a DC initiator, as powers of 2.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct LogStreams {
    pub concurrent: u8,
    pub errored: u8,
}

/// Attributes of a queue pair that only a function of the provider can set.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DriverOptions {
    /// Only one transport has streams.
    pub streams: Option<LogStreams>,
    /// libmlx5 must not copy short messages to the addresses of scatter entries. An initiator of DC
    /// does not need it: libmlx5 never asks for that together with send operations.
    pub scatter_to_cqe_off: bool,
}

/// The transport of a [`QueuePair`](crate::QueuePair). Every transport can send.
/// [`transports`](crate::transports) has the operations of each, and the other traits.
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
    const QP_TYPE: QpType = Self::TRANSPORT.qp_type();
    #[doc(hidden)]
    const TRANSPORT: Transport;
    /// Extended operations that a queue pair requires (`IBV_QP_EX_WITH_*`).
    #[doc(hidden)]
    const SEND_OPS: u64;
    /// Extended operations that a queue pair requests but does not require.
    #[doc(hidden)]
    const EXTRA_OPS: u64 = 0;
    /// Extended operations that a program can request ([`OptionalOps`](crate::qp::OptionalOps)).
    #[doc(hidden)]
    const OPTIONAL_OPS: u64 = 0;
    /// `true` if the classic verbs can create the queue pair and post to it.
    #[doc(hidden)]
    const CLASSIC: bool = true;
    /// Flags that requests can have.
    #[doc(hidden)]
    const FLAGS: u32 = !0;

    /// Returns those of [`EXTRA_OPS`](Self::EXTRA_OPS) to request on a device.
    ///
    /// # Safety
    /// The context is alive.
    #[doc(hidden)]
    unsafe fn extra_ops(_: *mut ibv_context) -> u64 {
        Self::EXTRA_OPS
    }

    /// `false` if requests complete in any order even on devices that follow the IBTA
    /// specification.
    #[doc(hidden)]
    const COMPLETES_IN_ORDER: bool = true;

    /// The verb of [`create`](Self::create).
    #[doc(hidden)]
    const CREATE: &str = "ibv_create_qp_ex";

    /// Creates a queue pair with the extended verbs.
    ///
    /// # Safety
    /// The context is alive. The attributes are valid, and so are their pointers.
    #[doc(hidden)]
    unsafe fn create(
        context: *mut ibv_context,
        attr: &mut ibv_qp_init_attr_ex,
        driver: DriverOptions,
    ) -> *mut ibv_qp {
        if driver.scatter_to_cqe_off {
            let mut driver = rdma_sys::mlx5dv_qp_init_attr {
                comp_mask: rdma_sys::MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS.into(),
                create_flags: rdma_sys::MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
                ..Default::default()
            };
            // SAFETY: guaranteed by the caller.
            return unsafe { rdma_sys::mlx5dv_create_qp(context, attr, &raw mut driver) };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { ibv_create_qp_ex(context, attr) }
    }
}

/// A transport whose requests name their destinations.
///
/// # Example
/// This function accepts all queue pairs that hold addresses:
/// ```no_run
/// use ibverbs::{AddressHandle, DatagramTransport, HeldAddress, QueuePair};
/// fn hold<T: DatagramTransport>(
///     qp: &mut QueuePair<T>,
///     peers: &[AddressHandle],
/// ) -> ibverbs::Result<Vec<HeldAddress>> {
///     peers.iter().map(|peer| qp.hold_address(peer)).collect()
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "requests on a queue pair of transport `{Self}` do not name a destination",
    label = "expected `Ud`, or a transport of the features `efa` and `mlx5`"
)]
pub trait DatagramTransport: SendTransport {}

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
    note = "a queue pair of `Ud` or `RawPacket` becomes ready with `start`; each request of a `Ud` queue pair names its destination: `wr::send(…).to(destination)`"
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
    note = "a request of a `Ud` queue pair is `wr::send(…).to(destination)` or `wr::send_with_imm(…).to(destination)`",
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
const OPTIONAL: u64 =
    rdma_sys::IBV_QP_EX_WITH_FLUSH as u64 | rdma_sys::IBV_QP_EX_WITH_ATOMIC_WRITE as u64;
const FETCHES: u64 = rdma_sys::IBV_QP_EX_WITH_RDMA_READ as u64
    | rdma_sys::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP as u64
    | rdma_sys::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD as u64;

/// Reliable connection: ordered, acknowledged, one peer.
///
/// # References
/// [`ibv_create_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html); IBA 9.7
#[doc(alias = "ibv_create_qp")]
#[derive(Clone, Copy, Debug)]
pub struct Rc;

impl SendTransport for Rc {
    const TRANSPORT: Transport = Transport::Rc;
    const SEND_OPS: u64 = MESSAGES | WRITES | FETCHES;
    const EXTRA_OPS: u64 = WINDOWS;
    const OPTIONAL_OPS: u64 = OPTIONAL;
}

impl DuplexTransport for Rc {}
impl ConnectedTransport for Rc {}
impl ConnectedDuplexTransport for Rc {}

/// Unreliable connection: ordered, not acknowledged, one peer. Losses affect whole messages.
///
/// # References
/// [`ibv_create_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html); IBA 9.8
#[doc(alias = "ibv_create_qp")]
#[derive(Clone, Copy, Debug)]
pub struct Uc;

impl SendTransport for Uc {
    const TRANSPORT: Transport = Transport::Uc;
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
/// use ibverbs::{DatagramAttr, Qkey, QpOptions, Ud};
/// let mut qp = pd.create_qp::<Ud>(&cq, &cq, QpOptions::default())?;
/// qp.start(&DatagramAttr::new(1, Qkey(0x1111_1111)))?; // each request names its destination
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_create_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html); IBA 9.8
#[doc(alias = "ibv_create_qp")]
#[derive(Clone, Copy, Debug)]
pub struct Ud;

impl SendTransport for Ud {
    const TRANSPORT: Transport = Transport::Ud;
    const SEND_OPS: u64 = MESSAGES;
}

impl DuplexTransport for Ud {}
impl DatagramTransport for Ud {}

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
#[doc(alias = "ibv_create_qp_ex")]
#[derive(Clone, Copy, Debug)]
pub struct XrcSend;

impl SendTransport for XrcSend {
    const TRANSPORT: Transport = Transport::XrcSend;
    const SEND_OPS: u64 = Rc::SEND_OPS;
    const EXTRA_OPS: u64 = WINDOWS;
}

impl ConnectedTransport for XrcSend {}

/// Implemented by transports of the group `B` of operations: by `B` itself, and by it in a group.
#[diagnostic::on_unimplemented(
    message = "a queue pair of transport `{Self}` does not have this operation",
    label = "only `{B}` has this operation",
    note = "a request of an `XrcSend` queue pair is one of `Rc` that names the shared receive queue of the peer: `wr::send(…).for_srq(srq_num)`",
    note = "a request of a transport of the features `efa` and `mlx5` names its destination: `wr::read(…).to(destination)`"
)]
#[doc(hidden)]
pub trait SameOperations<B>: SendTransport {}
impl SameOperations<Rc> for Rc {}
impl SameOperations<Ud> for Ud {}
impl<B: Groupable> SameOperations<B> for Grouped<B> {}

/// A transport whose queue pairs can be in a [group](crate::group).
#[diagnostic::on_unimplemented(
    message = "queue pairs of transport `{Self}` cannot be in a group",
    label = "expected `Rc`, `Uc` or `Ud`"
)]
#[doc(hidden)]
pub trait Groupable: DuplexTransport {}
impl Groupable for Rc {}
impl Groupable for Uc {}
impl Groupable for Ud {}

/// The transport `T` of a queue pair in a [`ThreadGroup`](crate::group::ThreadGroup), which cannot
/// be sent to another thread. `T` is [`Rc`], [`Uc`] or [`Ud`].
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, QueuePair, Rc, group::Grouped, wr};
/// fn answer(qp: &mut QueuePair<Grouped<Rc>>, message: Buf) -> ibverbs::Result<()> {
///     Ok(qp.post_send(wr::send(message))?)
/// }
/// ```
pub struct Grouped<T>(PhantomData<(T, *const ())>);

impl<T> fmt::Debug for Grouped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Grouped")
    }
}

impl<T> private::Sealed for Grouped<T> {}

impl<T: Groupable> SendTransport for Grouped<T> {
    const TRANSPORT: Transport = T::TRANSPORT;
    const SEND_OPS: u64 = T::SEND_OPS;
    const EXTRA_OPS: u64 = T::EXTRA_OPS;
    const OPTIONAL_OPS: u64 = T::OPTIONAL_OPS;
}

impl<T: Groupable> DuplexTransport for Grouped<T> {}
impl<T: Groupable + ConnectedTransport> ConnectedTransport for Grouped<T> {}
impl<T: Groupable + ConnectedDuplexTransport> ConnectedDuplexTransport for Grouped<T> {}
impl<T: Groupable + DatagramTransport> DatagramTransport for Grouped<T> {}

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
#[doc(alias = "ibv_create_qp")]
#[doc(alias = "ibv_create_flow")]
#[derive(Clone, Copy, Debug)]
pub struct RawPacket;

impl SendTransport for RawPacket {
    const TRANSPORT: Transport = Transport::RawPacket;
    const SEND_OPS: u64 = rdma_sys::IBV_QP_EX_WITH_SEND as u64;
}

impl DuplexTransport for RawPacket {}
