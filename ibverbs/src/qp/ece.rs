//! Enhanced connection establishment (ECE): negotiation of vendor-specific options.

#![allow(unsafe_code)]

use rdma_sys::{ibv_ece, ibv_query_ece, ibv_set_ece};

use super::pair::QueuePair;
use crate::convert::zero_or_errno;
use crate::error::Result;
use crate::transport::SendTransport;

/// Vendor-specific options of a queue pair (`struct ibv_ece`). The peers exchange the options that
/// they offer, and each peer sets those that both support.
///
/// The crate `rdmacm` exchanges them in the messages of its handshake.
///
/// # Example
/// The peers exchange their options before they move to RTR:
/// ```no_run
/// use ibverbs::{QueuePair, Rc, qp::Ece};
/// # fn f(qp: &mut QueuePair<Rc>, exchange: impl Fn(Ece) -> Ece) -> ibverbs::Result<()> {
/// let theirs = exchange(qp.query_ece()?); // together with the endpoints
/// qp.set_ece(theirs)?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_query_ece")]
#[doc(alias = "ibv_set_ece")]
#[doc(alias = "rdma_set_local_ece")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ece {
    /// Vendor that defines the options, or 0 if there are none.
    pub vendor_id: u32,
    /// Options as bits, whose meaning the vendor defines.
    pub options: u32,
}

impl<T: SendTransport> QueuePair<T> {
    /// Returns the options that the device offers for this queue pair. In RTR and later states, it
    /// returns the negotiated options.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the device has no ECE, such
    /// as Soft-RoCE and Soft-iWARP.
    #[doc(alias = "ibv_query_ece")]
    pub fn query_ece(&self) -> Result<Ece> {
        let qp = self.live("ibv_query_ece")?.as_ptr();
        let mut raw = ibv_ece::default();
        // SAFETY: the queue pair is alive and the structure valid for writing.
        let returned = unsafe { ibv_query_ece(qp, &raw mut raw) };
        zero_or_errno("ibv_query_ece", || self.describe(), returned)?;
        Ok(Ece {
            vendor_id: raw.vendor_id,
            options: raw.options,
        })
    }

    /// Sets the negotiated options. Call it before the queue pair moves to RTR.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the device has no ECE,
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the device did not offer the
    /// options.
    #[doc(alias = "ibv_set_ece")]
    pub fn set_ece(&mut self, ece: Ece) -> Result<()> {
        let qp = self.live("ibv_set_ece")?.as_ptr();
        let mut raw = ibv_ece {
            vendor_id: ece.vendor_id,
            options: ece.options,
            comp_mask: 0,
        };
        // SAFETY: the queue pair is alive and the structure valid during the call.
        let returned = unsafe { ibv_set_ece(qp, &raw mut raw) };
        zero_or_errno("ibv_set_ece", || self.describe(), returned)
    }
}
