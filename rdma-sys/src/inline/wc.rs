//! Reading the completion that an extended queue's poll stands on.

use super::call;
use crate::{__be32, ibv_cq_ex, ibv_wc_opcode, ibv_wc_tm_info};

macro_rules! readers {
    ($($(#[$doc:meta])* $name:ident: $entry:ident -> $value:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `cq` must be live and standing on a completion, and created with the flag of this field if it needs one.
        #[inline]
        pub unsafe fn $name(cq: *mut ibv_cq_ex) -> $value {
            // SAFETY: a provider fills the readers that the queue was created with.
            unsafe { call!((*cq).$entry, cq) }
        }
    )*};
}

readers! {
    /// What completed.
    ibv_wc_read_opcode: read_opcode -> ibv_wc_opcode;
    /// The provider's own error number.
    ibv_wc_read_vendor_err: read_vendor_err -> u32;
    /// Bytes transferred (`IBV_WC_EX_WITH_BYTE_LEN`).
    ibv_wc_read_byte_len: read_byte_len -> u32;
    /// Immediate data in network byte order (`IBV_WC_EX_WITH_IMM`).
    ibv_wc_read_imm_data: read_imm_data -> __be32;
    /// The key that the peer invalidated (`IBV_WC_EX_WITH_IMM`).
    ibv_wc_read_invalidated_rkey: read_imm_data -> u32;
    /// The local queue pair (`IBV_WC_EX_WITH_QP_NUM`).
    ibv_wc_read_qp_num: read_qp_num -> u32;
    /// The sending queue pair (`IBV_WC_EX_WITH_SRC_QP`).
    ibv_wc_read_src_qp: read_src_qp -> u32;
    /// `ibv_wc_flags` of the completion.
    ibv_wc_read_wc_flags: read_wc_flags -> ::core::ffi::c_uint;
    /// The source LID (`IBV_WC_EX_WITH_SLID`).
    ibv_wc_read_slid: read_slid -> u32;
    /// The service level (`IBV_WC_EX_WITH_SL`).
    ibv_wc_read_sl: read_sl -> u8;
    /// Destination LID path bits (`IBV_WC_EX_WITH_DLID_PATH_BITS`).
    ibv_wc_read_dlid_path_bits: read_dlid_path_bits -> u8;
    /// The device's clock at completion (`IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`).
    ibv_wc_read_completion_ts: read_completion_ts -> u64;
    /// Wall clock at completion, in ns (`IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK`).
    ibv_wc_read_completion_wallclock_ns: read_completion_wallclock_ns -> u64;
    /// The customer VLAN tag (`IBV_WC_EX_WITH_CVLAN`).
    ibv_wc_read_cvlan: read_cvlan -> u16;
    /// The tag of the flow that the packet matched (`IBV_WC_EX_WITH_FLOW_TAG`).
    ibv_wc_read_flow_tag: read_flow_tag -> u32;
}

/// The tag-matching header (`IBV_WC_EX_WITH_TM_INFO`).
///
/// # Safety
/// As for the other readers, and `tm_info` must be writable.
#[inline]
pub unsafe fn ibv_wc_read_tm_info(cq: *mut ibv_cq_ex, tm_info: *mut ibv_wc_tm_info) {
    // SAFETY: a provider fills the readers that the queue was created with.
    unsafe { call!((*cq).read_tm_info, cq, tm_info) }
}
