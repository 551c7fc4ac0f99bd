//! A work completion, from the poll until a queue pair retires it.

use std::fmt;

use rdma_sys::{IBV_WC_GRH, ibv_wc};

use super::status::{WcOpcode, WcStatus};
use super::wc::WcFields;
use crate::identity::{Direction, QueueId};
use crate::numbers::Qpn;
use crate::port::Lid;

/// A work completion: the result of one work request.
/// [`QueuePair::retire`](crate::QueuePair::retire) consumes it and returns the request's buffer.
///
/// A completion borrows the completion queue, so it cannot be kept past the next poll. It is not
/// `Clone` and cannot be constructed outside this crate, so a request is retired at most once.
///
/// Dropping a completion without retiring it leaves the buffer and the slot of its request with the
/// queue pair. A send is retired with a later one if the device completes sends in order. Any other
/// request is kept until the queue pair is destroyed, and requests can be posted only until the
/// queue wraps around to its slot.
///
/// # Example
/// ```no_run
/// use ibverbs::{CompletionQueue, QueuePair, Rc};
/// # fn f(cq: &mut CompletionQueue, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
/// for completion in cq.poll()? {
///     if !completion.is_success() {
///         println!("{} failed: {}", completion.qp_num(), completion.status());
///     }
///     let buf = qp.retire(completion)?.into_buf();
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_poll_cq")]
#[must_use = "a completion that is not retired keeps the slot of its request"]
pub struct Completion<'cq> {
    wc: &'cq ibv_wc,
}

impl<'cq> Completion<'cq> {
    #[inline]
    pub(crate) fn new(wc: &'cq ibv_wc) -> Self {
        Self { wc }
    }

    #[inline]
    pub(crate) fn wc(&self) -> &'cq ibv_wc {
        self.wc
    }

    /// Returns the status of the request.
    pub fn status(&self) -> WcStatus {
        self.wc.status()
    }

    /// Returns `true` if the request succeeded.
    pub fn is_success(&self) -> bool {
        self.status().is_success()
    }

    /// Returns the opcode. It is valid only if the request succeeded.
    pub fn opcode(&self) -> WcOpcode {
        WcOpcode(self.wc.opcode)
    }

    /// Returns the direction of the queue that the request was posted to. It is valid for failures
    /// too.
    pub fn direction(&self) -> Direction {
        self.wc.wr_id().direction()
    }

    /// Returns the number of bytes received, 0 for a send or a failure.
    pub fn received_len(&self) -> usize {
        self.wc.received_len()
    }

    /// Returns the immediate data of the received message in host byte order, if it has any.
    pub fn imm_data(&self) -> Option<u32> {
        self.wc.imm_data()
    }

    /// Returns the queue pair number. Devices reuse numbers; [`queue`](Self::queue) is never
    /// reused.
    pub fn qp_num(&self) -> Qpn {
        Qpn(self.wc.qp_num)
    }

    /// Returns the identity of the queue pair, or of the shared receive queue, that retires this
    /// completion.
    pub fn queue(&self) -> QueueId {
        self.wc.wr_id().queue()
    }

    /// Returns the source of a received datagram. It is valid only for a successful receive on a
    /// datagram queue pair.
    pub fn source(&self) -> UdSource {
        UdSource {
            qpn: Qpn(self.wc.src_qp),
            slid: Lid(self.wc.slid),
            sl: self.wc.sl,
            dlid_path_bits: self.wc.dlid_path_bits,
            has_grh: self.wc.has_grh(),
        }
    }

    /// Returns the vendor's error code. It is valid only if the request failed.
    pub fn vendor_err(&self) -> u32 {
        self.wc.vendor_err
    }
}

impl fmt::Debug for Completion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("status", &self.status())
            .field("direction", &self.direction())
            .field("queue", &self.queue())
            .finish_non_exhaustive()
    }
}

/// Source of a received datagram.
///
/// # Example
/// This replies to the sender of a datagram:
/// ```no_run
/// use ibverbs::{Buf, Qkey, QueuePair, Ud, UdSource, wr::{self, Destination}};
/// # fn f(qp: &mut QueuePair<Ud>, source: UdSource, received: &Buf) -> ibverbs::Result<()> {
/// let ah = qp.pd().create_ah_from_wc(1, &source, received)?;
/// let destination = Destination {
///     address: qp.hold_address(&ah)?,
///     qpn: source.qpn,
///     qkey: Qkey(0x1111_1111),
/// };
/// qp.post_send(wr::send(wr::Inline(b"pong")).to(destination))?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_poll_cq")]
#[doc(alias = "ibv_create_ah_from_wc")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdSource {
    /// Number of the sending queue pair.
    pub qpn: Qpn,
    /// LID of the sending port, or 0 on RoCE.
    pub slid: Lid,
    /// Service level.
    pub sl: u8,
    /// Low bits of the destination LID.
    pub dlid_path_bits: u8,
    /// `true` if the first 40 bytes of the buffer hold a global route header.
    pub has_grh: bool,
}

impl UdSource {
    /// Returns a work completion with the fields that `ibv_create_ah_from_wc` reads.
    pub(crate) fn to_raw(self) -> ibv_wc {
        ibv_wc {
            src_qp: self.qpn.0,
            slid: self.slid.0,
            sl: self.sl,
            dlid_path_bits: self.dlid_path_bits,
            wc_flags: if self.has_grh { IBV_WC_GRH } else { 0 },
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_that_of_its_raw_completion() {
        for has_grh in [false, true] {
            let source = UdSource {
                qpn: Qpn(1),
                slid: Lid(2),
                sl: 3,
                dlid_path_bits: 4,
                has_grh,
            };
            assert_eq!(Completion::new(&source.to_raw()).source(), source);
        }
    }
}
