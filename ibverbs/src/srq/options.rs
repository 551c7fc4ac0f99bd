//! Options, attributes and types of shared receive queues.

use rdma_types::setters;

use crate::error::{Error, ErrorKind, Result};
use crate::in_flight::{RecvSlab, check_memory};

/// Options of a new shared receive queue.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// use ibverbs::SrqOptions;
/// let srq = pd.create_srq(SrqOptions::new().max_wr(1024))?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_create_srq")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrqOptions {
    /// Maximum number of receives in flight, at most the device's `max_srq_wr`. Default: `256`.
    pub max_wr: u32,
    /// Maximum number of scatter entries of a receive, from 1 to the device's `max_srq_sge`.
    /// Default: `1`.
    pub max_sge: u32,
    /// Maximum number of receives in a batch. Default: `32`.
    pub max_batch: u32,
    /// `true` to hold memory whose addresses this process does not have, like
    /// [`QpOptions::device_addresses`](crate::QpOptions::device_addresses). It also has the effect
    /// of that option on the queue pairs of the queue. Default: `false`.
    pub device_addresses: bool,
}

impl Default for SrqOptions {
    fn default() -> Self {
        Self::new()
    }
}

setters! {
    SrqOptions {
        max_wr: u32,
        max_sge: u32,
        max_batch: u32,
        device_addresses: bool,
    }
}

impl SrqOptions {
    /// Returns the default options.
    pub const fn new() -> Self {
        Self {
            max_wr: 256,
            max_sge: 1,
            max_batch: 32,
            device_addresses: false,
        }
    }

    /// Checks the number of receives against the limit of this library.
    pub(crate) fn check(self, verb: &'static str, what: impl FnOnce() -> String) -> Result<()> {
        if self.max_wr <= RecvSlab::MAX {
            return check_memory(verb, self.max_wr, 0);
        }
        Err(
            Error::new(ErrorKind::InvalidInput, verb, what()).with_help(format!(
                "this library supports at most {} receives in flight",
                RecvSlab::MAX
            )),
        )
    }
}

/// The attributes of a shared receive queue (`struct ibv_srq_attr`).
///
/// # Example
/// ```no_run
/// use ibverbs::SharedReceiveQueue;
/// # fn f(srq: &SharedReceiveQueue) -> ibverbs::Result<()> {
/// let attr = srq.query()?;
/// println!("{} receives, an event below {}", attr.max_wr, attr.limit);
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_query_srq")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrqAttr {
    /// Number of receives that the device's queue holds.
    pub max_wr: u32,
    /// Scatter entries of a receive.
    pub max_sge: u32,
    /// Number of receives below which the device raises an event, or 0 for none.
    pub limit: u32,
}

mod private {
    pub trait Sealed {}
    impl Sealed for super::Basic {}
    impl Sealed for super::Xrc {}
}

/// The type of a [`SharedReceiveQueue`](crate::SharedReceiveQueue).
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, SharedReceiveQueue, srq::SrqType, wr};
/// fn fill<K: SrqType>(srq: &mut SharedReceiveQueue<K>, bufs: Vec<Buf>) -> ibverbs::Result<()> {
///     for buf in bufs {
///         srq.post_recv(wr::recv(buf))?;
///     }
///     Ok(())
/// }
/// ```
///
/// # References
/// [`ibv_create_srq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_srq_ex.3.html)
#[doc(alias = "ibv_create_srq_ex")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type of shared receive queues",
    label = "expected `srq::Basic` or `xrc::Xrc`"
)]
pub trait SrqType: private::Sealed + 'static {}

/// A shared receive queue of ordinary queue pairs (`IBV_SRQT_BASIC`), which are [created with
/// it](crate::ProtectionDomain::create_qp_with_srq).
#[doc(alias = "ibv_create_srq")]
#[derive(Clone, Copy, Debug)]
pub struct Basic;

impl SrqType for Basic {}

/// A shared receive queue of an [XRC domain](crate::xrc::XrcDomain) (`IBV_SRQT_XRC`). Senders use
/// its number in their requests.
///
/// # References
/// [`ibv_create_srq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_srq_ex.3.html); IBA annex A14
#[doc(alias = "ibv_create_srq_ex")]
#[derive(Clone, Copy, Debug)]
pub struct Xrc;

impl SrqType for Xrc {}
