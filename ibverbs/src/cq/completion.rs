//! One completion, on its way from the completion queue to the queue pair that retires it.

use std::fmt;

use rdma_sys::{IBV_WC_WITH_IMM, ibv_wc};

use super::status::{WcOpcode, WcStatus};
use crate::identity::{Direction, Qpn, QueueId, WrId};

/// A completion: how one work request ended. Give it to [`QueuePair::retire`](crate::QueuePair::retire), which returns the buffer.
///
/// It borrows the completion queue, so it cannot be kept past the next poll; it is not `Clone` and cannot be made by hand, so a
/// request is retired at most once. Dropping it without retiring leaks nothing but its place: a buffer comes back when a later send
/// retires, or when the queue pair is destroyed.
#[must_use = "a completion that is not retired keeps its place in the queue"]
pub struct Completion<'cq> {
    wc: &'cq ibv_wc,
}

impl<'cq> Completion<'cq> {
    pub(super) fn new(wc: &'cq ibv_wc) -> Self {
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

    /// Whether it was a send (or any request of the send queue) or a receive; valid for failures too.
    pub fn direction(&self) -> Direction {
        self.wr_id().direction()
    }

    /// How many bytes were received; valid for a successful receive only.
    pub fn byte_len(&self) -> usize {
        self.wc.byte_len as usize
    }

    /// The immediate data that came with the message, in host order.
    pub fn imm_data(&self) -> Option<u32> {
        if self.wc.wc_flags & IBV_WC_WITH_IMM == 0 {
            return None;
        }
        Some(u32::from_be(self.imm_be()))
    }

    #[allow(unsafe_code)]
    fn imm_be(&self) -> u32 {
        // SAFETY: both fields of the union are 32-bit integers.
        unsafe { self.wc.__bindgen_anon_1.imm_data }
    }

    /// The number of the queue pair, as the device gave it. Numbers are reused; [`queue`](Self::queue) is not.
    pub fn qp_num(&self) -> Qpn {
        Qpn(self.wc.qp_num)
    }

    /// Which queue pair of this process it belongs to: what to look it up by when many share a completion queue.
    pub fn queue(&self) -> QueueId {
        self.wr_id().queue()
    }

    /// The vendor's error code, for a failure.
    pub fn vendor_err(&self) -> u32 {
        self.wc.vendor_err
    }

    pub(crate) fn wr_id(&self) -> WrId {
        WrId(self.wc.wr_id)
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
