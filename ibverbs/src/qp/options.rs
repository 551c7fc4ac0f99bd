//! Requested sizes and granted capacities of a queue pair.

use rdma_types::setters;

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
///
/// # References
/// [`ibv_create_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html)
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
    /// Maximum length of inline data in bytes. The largest possible value depends on the device.
    /// Default: `0`.
    pub max_inline_data: u32,
    /// Maximum number of requests in a batch of receives, or of sends that are posted with
    /// `ibv_post_send`. Default: `32`.
    pub max_batch: u32,
    /// `true` to post with `ibv_post_send` even if the provider has the extended verbs
    /// (`ibv_wr_*`). Default: `false`.
    pub classic_only: bool,
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
///
/// # References
/// [`ibv_create_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html)
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
