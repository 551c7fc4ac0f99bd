//! Enhanced connection establishment: what two vendors' devices agree on beyond the specification.

#![allow(unsafe_code)]

use rdma_sys::{ibv_ece, ibv_query_ece, ibv_set_ece};

use super::pair::QueuePair;
use crate::convert::zero_or_errno;
use crate::error::Result;
use crate::raw::AsRaw;
use crate::transport::SendTransport;

/// What a device can do beyond the specification, in its vendor's own bits: told to the peer, which
/// sets what both can do.
///
/// # Example
/// What the peer's device offers, before RTR:
/// ```no_run
/// use ibverbs::{QueuePair, Rc, qp::Ece};
/// # fn f(qp: &mut QueuePair<Rc>, exchange: impl Fn(Ece) -> Ece) -> ibverbs::Result<()> {
/// let theirs = exchange(qp.query_ece()?); // ours for theirs, with the endpoints
/// qp.set_ece(theirs)?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_query_ece(3)`](https://man7.org/linux/man-pages/man3/ibv_query_ece.3.html),
/// [`ibv_set_ece(3)`](https://man7.org/linux/man-pages/man3/ibv_set_ece.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ece {
    /// Whose bits they are; 0 for none.
    pub vendor_id: u32,
    /// The bits.
    pub options: u32,
}

impl<T: SendTransport> QueuePair<T> {
    /// What the device offers for this queue pair, or after RTR what was agreed on.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the device has nothing to
    /// offer (both software devices).
    ///
    /// # References
    /// [`ibv_query_ece(3)`](https://man7.org/linux/man-pages/man3/ibv_query_ece.3.html)
    pub fn query_ece(&self) -> Result<Ece> {
        let mut raw = ibv_ece::default();
        // SAFETY: the queue pair is alive and the structure valid for writing.
        let returned = unsafe { ibv_query_ece(self.as_raw(), &raw mut raw) };
        zero_or_errno("ibv_query_ece", || self.describe(), returned)?;
        Ok(Ece {
            vendor_id: raw.vendor_id,
            options: raw.options,
        })
    }

    /// Sets what both sides can do, before RTR.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the device does not know it,
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for bits that it did not offer.
    ///
    /// # References
    /// [`ibv_set_ece(3)`](https://man7.org/linux/man-pages/man3/ibv_set_ece.3.html)
    pub fn set_ece(&mut self, ece: Ece) -> Result<()> {
        let mut raw = ibv_ece {
            vendor_id: ece.vendor_id,
            options: ece.options,
            comp_mask: 0,
        };
        // SAFETY: the queue pair is alive and the structure valid during the call.
        let returned = unsafe { ibv_set_ece(self.as_raw(), &raw mut raw) };
        zero_or_errno("ibv_set_ece", || self.describe(), returned)
    }
}
