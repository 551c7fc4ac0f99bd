//! Shared receive queues as values: what one is made with, how it stands, and of which type it is.

use crate::error::{Error, ErrorKind, Result};
use crate::in_flight::RecvSlab;

/// What a shared receive queue is made with.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// use ibverbs::SrqOptions;
/// let store = pd.create_srq(SrqOptions {
///     max_wr: 1024,
///     ..SrqOptions::default()
/// })?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_create_srq(3)`](https://man7.org/linux/man-pages/man3/ibv_create_srq.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqOptions {
    /// Receives that can be in flight.
    pub max_wr: u32,
    /// Scatter entries of a receive.
    pub max_sge: u32,
    /// Receives that one batch can hold.
    pub max_batch: u32,
}

impl Default for SrqOptions {
    fn default() -> Self {
        Self {
            max_wr: 256,
            max_sge: 1,
            max_batch: 32,
        }
    }
}

impl SrqOptions {
    /// Refuses more receives than the library can tell apart.
    pub(crate) fn check(self, verb: &'static str, what: impl FnOnce() -> String) -> Result<()> {
        if self.max_wr <= RecvSlab::MAX {
            return Ok(());
        }
        Err(
            Error::new(ErrorKind::InvalidInput, verb, what()).with_help(format!(
                "this library tells at most {} receives in flight apart",
                RecvSlab::MAX
            )),
        )
    }
}

/// How a shared receive queue stands (`struct ibv_srq_attr`).
///
/// # Example
/// ```no_run
/// use ibverbs::SharedReceiveQueue;
/// # fn f(store: &SharedReceiveQueue) -> ibverbs::Result<()> {
/// let attr = store.query()?;
/// println!("{} receives, an event below {}", attr.max_wr, attr.limit);
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_query_srq(3)`](https://man7.org/linux/man-pages/man3/ibv_query_srq.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrqAttr {
    /// Receives that the device's queue holds.
    pub max_wr: u32,
    /// Scatter entries of a receive.
    pub max_sge: u32,
    /// Below how many receives an event comes; 0 for never.
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
/// fn fill<K: SrqType>(store: &mut SharedReceiveQueue<K>, bufs: Vec<Buf>) -> ibverbs::Result<()> {
///     for buf in bufs {
///         store.post_recv(wr::recv(buf))?;
///     }
///     Ok(())
/// }
/// ```
///
/// # References
/// [`ibv_create_srq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_srq_ex.3.html)
pub trait SrqType: private::Sealed + 'static {}

/// A shared receive queue of queue pairs of this process (`IBV_SRQT_BASIC`): each is
/// [made with it](crate::ProtectionDomain::create_qp_with_srq).
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// use ibverbs::{SharedReceiveQueue, SrqOptions, srq::Basic};
/// let store: SharedReceiveQueue<Basic> = pd.create_srq(SrqOptions::default())?; // the usual type
///
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_create_srq(3)`](https://man7.org/linux/man-pages/man3/ibv_create_srq.3.html)
#[derive(Clone, Copy, Debug)]
pub struct Basic;

impl SrqType for Basic {}

/// A shared receive queue of an [XRC domain](crate::xrc::XrcDomain) (`IBV_SRQT_XRC`): senders name
/// it in their requests.
///
/// # Example
/// ```no_run
/// use ibverbs::{CompletionQueue, ProtectionDomain, SharedReceiveQueue, SrqOptions, xrc::{Xrc, XrcDomain}};
/// # fn f(pd: &ProtectionDomain, xrcd: &XrcDomain, cq: &CompletionQueue) -> ibverbs::Result<()> {
/// let store: SharedReceiveQueue<Xrc> = pd.create_xrc_srq(xrcd, cq, SrqOptions::default())?;
/// println!("senders name it {}", store.srq_num()?);
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_create_srq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_srq_ex.3.html); IBA annex A14
#[derive(Clone, Copy, Debug)]
pub struct Xrc;

impl SrqType for Xrc {}
