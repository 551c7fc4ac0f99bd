//! Requested sizes and granted capacities of a queue pair.

use bitflags::bitflags;
use rdma_types::setters;

bitflags! {
    /// Operations that few devices have. A queue pair can post them if it was created with them
    /// ([`QpOptions::optional_ops`]).
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(ibverbs::CqOptions::default())?);
    /// use ibverbs::{QpOptions, Rc, qp::OptionalOps};
    /// let options = QpOptions::new().optional_ops(OptionalOps::ATOMIC_WRITE | OptionalOps::FLUSH);
    /// let qp = pd.create_qp::<Rc>(&cq, &cq, options)?; // fails if the device lacks one of them
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_create_qp_ex")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OptionalOps: u64 {
        /// [`wr::flush`](crate::wr::flush), on reliable connections: `IBV_QP_EX_WITH_FLUSH`. Needs
        /// rdma-core 45 or newer.
        const FLUSH = rdma_sys::IBV_QP_EX_WITH_FLUSH as u64;
        /// [`wr::atomic_write`](crate::wr::atomic_write), on reliable connections:
        /// `IBV_QP_EX_WITH_ATOMIC_WRITE`.
        const ATOMIC_WRITE = rdma_sys::IBV_QP_EX_WITH_ATOMIC_WRITE as u64;
    }
}

/// Options of a new queue pair. The device may grant more than requested ([`QpCaps`]).
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(ibverbs::CqOptions::default())?);
/// use ibverbs::{QpOptions, Rc};
/// let options = QpOptions::new().max_send_wr(256).max_recv_wr(16).max_inline_data(64);
/// let qp = pd.create_qp::<Rc>(&cq, &cq, options)?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_create_qp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpOptions {
    /// Maximum number of send requests in flight, at most the device's `max_qp_wr`. Default: `64`.
    pub max_send_wr: u32,
    /// Maximum number of receives in flight, at most the device's `max_qp_wr`. Default: `64`.
    pub max_recv_wr: u32,
    /// Maximum number of gather entries of a send, from 1 to the device's `max_sge`. Default: `1`.
    pub max_send_sge: u32,
    /// Maximum number of scatter entries of a receive, from 1 to the device's `max_sge`. Default:
    /// `1`.
    pub max_recv_sge: u32,
    /// Maximum length of inline data in bytes. The largest possible value depends on the device,
    /// and the error about a larger one has it. Default: `0`.
    pub max_inline_data: u32,
    /// Maximum number of requests in a batch of receives, or of sends that are posted with
    /// `ibv_post_send`. Default: `32`.
    pub max_batch: u32,
    /// `true` to post with `ibv_post_send` even if the provider has the extended verbs
    /// (`ibv_wr_*`). Default: `false`.
    pub classic_only: bool,
    /// Operations that the queue pair must have although few devices have them. Default:
    /// `OptionalOps::empty()`.
    pub optional_ops: OptionalOps,
    /// `true` to [hold](crate::QueuePair::hold) memory whose addresses this process does not have:
    /// a [`DeviceRegion`](crate::DeviceRegion), or a
    /// [zero-based](crate::MemoryOptions::zero_based) region. On mlx5, this turns off "scatter to
    /// CQE", with which libmlx5 copies short messages to these addresses. hns always copies, so it
    /// does not support this. Default: `false`.
    pub device_addresses: bool,
}

impl QpOptions {
    /// Returns the default options.
    pub const fn new() -> Self {
        Self {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
            max_batch: 32,
            classic_only: false,
            optional_ops: OptionalOps::empty(),
            device_addresses: false,
        }
    }
}

impl Default for QpOptions {
    fn default() -> Self {
        Self::new()
    }
}

setters! {
    QpOptions {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        max_batch: u32,
        classic_only: bool,
        optional_ops: OptionalOps,
        device_addresses: bool,
    }
}

/// Capacities granted by the device, at least those requested.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, message: Buf) -> ibverbs::Result<()> {
/// if message.len() <= qp.caps().max_inline_data as usize {
///     qp.post_send(wr::send(wr::Inline(&message)))?; // saves the device a read of the buffer
/// } else {
///     qp.post_send(wr::send(message))?;
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_create_qp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpCaps {
    /// Maximum number of send requests in flight.
    pub max_send_wr: u32,
    /// Maximum number of receives in flight.
    pub max_recv_wr: u32,
    /// Maximum number of gather entries of a send.
    pub max_send_sge: u32,
    /// Maximum number of scatter entries of a receive.
    pub max_recv_sge: u32,
    /// Maximum length of inline data in bytes.
    pub max_inline_data: u32,
}
