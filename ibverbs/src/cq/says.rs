//! What a completion says, copied out of the provider's queue or still in it: what retires a
//! request asks both alike.

use rdma_sys::{IBV_WC_GRH, IBV_WC_WITH_IMM, ibv_wc};

use super::status::WcStatus;
use crate::identity::{Direction, WrId};

/// What is said of how a request ended beyond whether it succeeded. Public only because
/// [`Retired`](crate::Retired) names it; it cannot be named from outside.
pub trait Says: Copy {
    fn opcode(self) -> u32;

    /// The bytes received, for a receive.
    fn byte_len(self) -> u32;

    fn wc_flags(self) -> u32;

    /// Immediate data, or an invalidated key, as the flags say; as the device gave it.
    fn immediate(self) -> u32;

    fn vendor_err(self) -> u32;
}

/// What a completion says of the request.
pub(crate) trait Ended: Says {
    fn wr_id(self) -> WrId;

    fn status(self) -> WcStatus;

    /// Whether a message was received. Of an entry that is no receive, the extended verbs leave the
    /// other fields as they were.
    fn received(self) -> bool {
        self.wr_id().direction() == Direction::Recv && self.status().is_success()
    }

    /// The immediate data that came with a message, in host order.
    fn imm_data(self) -> Option<u32> {
        (self.received() && self.wc_flags() & IBV_WC_WITH_IMM != 0)
            .then(|| u32::from_be(self.immediate()))
    }

    #[inline]
    fn has_grh(self) -> bool {
        self.wc_flags() & IBV_WC_GRH != 0
    }
}

impl Says for &ibv_wc {
    #[inline]
    fn opcode(self) -> u32 {
        self.opcode
    }

    #[inline]
    fn byte_len(self) -> u32 {
        self.byte_len
    }

    #[inline]
    fn wc_flags(self) -> u32 {
        self.wc_flags
    }

    #[inline]
    #[allow(unsafe_code)]
    fn immediate(self) -> u32 {
        // SAFETY: both fields of the union are 32-bit integers.
        unsafe { self.__bindgen_anon_1.imm_data }
    }

    #[inline]
    fn vendor_err(self) -> u32 {
        self.vendor_err
    }
}

impl Ended for &ibv_wc {
    #[inline]
    fn wr_id(self) -> WrId {
        WrId(self.wr_id)
    }

    #[inline]
    fn status(self) -> WcStatus {
        WcStatus(self.status)
    }
}

/// What a completion said, kept beyond the next poll.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    opcode: u32,
    byte_len: u32,
    wc_flags: u32,
    immediate: u32,
    vendor_err: u32,
}

impl Said {
    #[inline]
    pub(crate) fn of(completion: impl Says) -> Self {
        Self {
            opcode: completion.opcode(),
            byte_len: completion.byte_len(),
            wc_flags: completion.wc_flags(),
            immediate: completion.immediate(),
            vendor_err: completion.vendor_err(),
        }
    }
}

impl Says for Said {
    fn opcode(self) -> u32 {
        self.opcode
    }

    fn byte_len(self) -> u32 {
        self.byte_len
    }

    fn wc_flags(self) -> u32 {
        self.wc_flags
    }

    fn immediate(self) -> u32 {
        self.immediate
    }

    fn vendor_err(self) -> u32 {
        self.vendor_err
    }
}
