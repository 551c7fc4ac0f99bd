//! One completion, on its way from the completion queue to the queue pair that retires it.

use std::fmt;

use rdma_sys::{IBV_WC_GRH, ibv_wc};

use super::says::Ended;
use super::status::{WcOpcode, WcStatus};
use crate::identity::{Direction, QueueId, WrId};
use crate::numbers::Qpn;
use crate::port::Lid;

/// A completion: how one work request ended. Give it to
/// [`QueuePair::retire`](crate::QueuePair::retire), which returns the buffer.
///
/// It borrows the completion queue, so it cannot be kept past the next poll; it is not `Clone` and
/// cannot be made by hand, so a request is retired at most once. Dropped, it leaves its buffer and
/// its place with the queue: those of a send come back when a later one retires, those of a receive
/// when the queue pair is destroyed, which takes one round of receives more until then.
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
///
/// # References
/// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)
#[must_use = "a completion that is not retired keeps its place in the queue"]
pub struct Completion<'cq> {
    wc: &'cq ibv_wc,
}

impl<'cq> Completion<'cq> {
    pub(crate) fn new(wc: &'cq ibv_wc) -> Self {
        Self { wc }
    }

    /// How the request ended.
    pub fn status(&self) -> WcStatus {
        WcStatus(self.wc.status)
    }

    /// Whether it did what was asked.
    pub fn is_success(&self) -> bool {
        self.status().is_success()
    }

    /// What kind of request it was; valid for a success only.
    pub fn opcode(&self) -> WcOpcode {
        WcOpcode(self.wc.opcode)
    }

    /// Whether it was a send (or any request of the send queue) or a receive; valid for failures
    /// too.
    pub fn direction(&self) -> Direction {
        self.wr_id().direction()
    }

    /// How many bytes were received; valid for a successful receive only.
    pub fn byte_len(&self) -> usize {
        if self.direction() == Direction::Recv {
            self.wc.byte_len as usize
        } else {
            0
        }
    }

    /// The immediate data that came with the message, in host order.
    pub fn imm_data(&self) -> Option<u32> {
        self.wc.imm_data()
    }

    #[inline]
    pub(crate) fn entry(&self) -> &'cq ibv_wc {
        self.wc
    }

    /// The number of the queue pair, as the device gave it. Numbers are reused;
    /// [`queue`](Self::queue) is not.
    pub fn qp_num(&self) -> Qpn {
        Qpn(self.wc.qp_num)
    }

    /// Which queue pair of this process it belongs to: what to look it up by when many share a
    /// completion queue.
    pub fn queue(&self) -> QueueId {
        self.wr_id().queue()
    }

    /// Where a received datagram came from; valid for a successful receive of a datagram queue pair
    /// only.
    pub fn source(&self) -> UdSource {
        UdSource {
            qpn: Qpn(self.wc.src_qp),
            slid: Lid(self.wc.slid),
            sl: self.wc.sl,
            dlid_path_bits: self.wc.dlid_path_bits,
            has_grh: self.wc.has_grh(),
        }
    }

    /// The vendor's error code, for a failure.
    pub fn vendor_err(&self) -> u32 {
        self.wc.vendor_err
    }

    fn wr_id(&self) -> WrId {
        self.wc.wr_id()
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

/// Where a datagram came from.
///
/// # Example
/// An answer to whoever sent a datagram:
/// ```no_run
/// use ibverbs::{
///     Buf, Qkey, QueuePair, Ud, UdSource,
///     wr::{self, Destination},
/// };
/// # fn f(qp: &mut QueuePair<Ud>, source: UdSource, received: &Buf) -> ibverbs::Result<()> {
/// let back = qp.pd().create_ah_to_source(1, &source, received)?;
/// let destination = Destination {
///     address: qp.hold_address(&back)?,
///     qpn: source.qpn,
///     qkey: Qkey(0x1111_1111),
/// };
/// qp.post_send(wr::send_to(wr::Inline(b"pong"), destination))?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html),
/// [`ibv_create_ah_from_wc(3)`](https://man7.org/linux/man-pages/man3/ibv_create_ah_from_wc.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdSource {
    /// The sending queue pair.
    pub qpn: Qpn,
    /// LID of the sending port; 0 on RoCE.
    pub slid: Lid,
    /// Service level.
    pub sl: u8,
    /// Low bits of the LID that it was sent to.
    pub dlid_path_bits: u8,
    /// Whether the first 40 bytes of the buffer hold a global route header.
    pub has_grh: bool,
}

impl UdSource {
    /// The fields of a completion that an address handle is made from.
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
