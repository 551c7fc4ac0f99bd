//! Fields of a work completion that need interpretation.

use rdma_sys::{IBV_WC_GRH, IBV_WC_WITH_IMM, ibv_wc};

use super::status::WcStatus;
use crate::identity::Direction;
use crate::wr_id::WrId;

/// Interpreted fields of an `ibv_wc`. [`Completion`](crate::Completion) borrows an `ibv_wc`, and
/// [`Retired`](crate::Retired) owns a copy of one.
pub(crate) trait WcFields {
    fn wr_id(&self) -> WrId;

    fn status(&self) -> WcStatus;

    /// Returns `true` for a successful receive. Only then are the length, the flags and the
    /// immediate data valid: polling with the extended verbs does not write them for other
    /// completions, so they can be those of an earlier completion.
    fn is_successful_recv(&self) -> bool;

    /// Returns the number of bytes received, or 0 if this is not a successful receive.
    fn received_len(&self) -> usize;

    /// Returns the immediate data or the invalidated key, without a change of byte order, if this
    /// is a successful receive and one of the bits of `flags` is set.
    fn imm_or_invalidated(&self, flags: u32) -> Option<u32>;

    /// Returns the immediate data of a received message in host byte order.
    fn imm_data(&self) -> Option<u32> {
        self.imm_or_invalidated(IBV_WC_WITH_IMM).map(u32::from_be)
    }

    /// Returns `true` if the buffer begins with a global route header.
    fn has_grh(&self) -> bool;
}

impl WcFields for ibv_wc {
    #[inline]
    fn wr_id(&self) -> WrId {
        WrId(self.wr_id)
    }

    #[inline]
    fn status(&self) -> WcStatus {
        WcStatus(self.status)
    }

    #[inline]
    fn is_successful_recv(&self) -> bool {
        self.wr_id().direction() == Direction::Recv && self.status().is_success()
    }

    #[inline]
    fn received_len(&self) -> usize {
        if self.is_successful_recv() {
            self.byte_len as usize
        } else {
            0
        }
    }

    #[allow(unsafe_code)]
    fn imm_or_invalidated(&self, flags: u32) -> Option<u32> {
        if !self.is_successful_recv() || self.wc_flags & flags == 0 {
            return None;
        }
        // SAFETY: both fields of the union are 32-bit integers.
        Some(unsafe { self.__bindgen_anon_1.imm_data })
    }

    fn has_grh(&self) -> bool {
        self.wc_flags & IBV_WC_GRH != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::QueueId;
    use crate::wr_id::{RequestKind, WrId};
    use rdma_sys::{IBV_WC_GENERAL_ERR, IBV_WC_SUCCESS, IBV_WC_WITH_IMM};

    /// A provider leaves the fields of other completions undefined.
    #[test]
    fn only_a_successful_receive_has_a_length_and_immediate_data() {
        let queue = QueueId::next().expect("an identity");
        for (kind, status, expected) in [
            (RequestKind::Recv, IBV_WC_SUCCESS, true),
            (RequestKind::Recv, IBV_WC_GENERAL_ERR, false),
            (RequestKind::Send, IBV_WC_SUCCESS, false),
        ] {
            let wc = ibv_wc {
                wr_id: WrId::new(queue, kind, 0).0,
                status,
                byte_len: 9,
                wc_flags: IBV_WC_WITH_IMM,
                ..Default::default()
            };
            assert_eq!(wc.received_len(), if expected { 9 } else { 0 });
            assert_eq!(wc.imm_or_invalidated(IBV_WC_WITH_IMM).is_some(), expected);
            assert!(!wc.has_grh());
        }
    }
}
