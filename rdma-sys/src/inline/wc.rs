//! Functions that read the current completion of an extended completion queue.

use super::call;
use crate::{__be32, ibv_cq_ex, ibv_wc_opcode, ibv_wc_tm_info};

macro_rules! readers {
    ($($(#[$doc:meta])* $name:ident: $entry:ident -> $value:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `cq` must be live and have a current completion, and it must have been created with the
        /// flag that this field requires, if any, by a provider that has set the function.
        #[inline]
        pub unsafe fn $name(cq: *mut ibv_cq_ex) -> $value {
            // SAFETY: the caller guarantees a current completion and that the provider has set the
            // function.
            unsafe { call!((*cq).$entry, cq) }
        }
    )*};
}

readers! {
    /// Returns the opcode of the completed request.
    ibv_wc_read_opcode: read_opcode -> ibv_wc_opcode;
    /// Returns the vendor-specific error code.
    ibv_wc_read_vendor_err: read_vendor_err -> u32;
    /// Returns the number of bytes transferred (`IBV_WC_EX_WITH_BYTE_LEN`).
    ibv_wc_read_byte_len: read_byte_len -> u32;
    /// Returns the immediate data in network byte order (`IBV_WC_EX_WITH_IMM`).
    ibv_wc_read_imm_data: read_imm_data -> __be32;
    /// Returns the key that the peer invalidated (`IBV_WC_EX_WITH_IMM`).
    ibv_wc_read_invalidated_rkey: read_imm_data -> u32;
    /// Returns the number of the local queue pair (`IBV_WC_EX_WITH_QP_NUM`).
    ibv_wc_read_qp_num: read_qp_num -> u32;
    /// Returns the number of the sending queue pair (`IBV_WC_EX_WITH_SRC_QP`).
    ibv_wc_read_src_qp: read_src_qp -> u32;
    /// Returns the `ibv_wc_flags` of the completion.
    ibv_wc_read_wc_flags: read_wc_flags -> ::core::ffi::c_uint;
    /// Returns the source LID (`IBV_WC_EX_WITH_SLID`).
    ibv_wc_read_slid: read_slid -> u32;
    /// Returns the service level (`IBV_WC_EX_WITH_SL`).
    ibv_wc_read_sl: read_sl -> u8;
    /// Returns the path bits of the destination LID (`IBV_WC_EX_WITH_DLID_PATH_BITS`).
    ibv_wc_read_dlid_path_bits: read_dlid_path_bits -> u8;
    /// Returns the device's clock at completion (`IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`).
    ibv_wc_read_completion_ts: read_completion_ts -> u64;
    /// Returns the wall clock at completion in ns
    /// (`IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK`).
    ibv_wc_read_completion_wallclock_ns: read_completion_wallclock_ns -> u64;
    /// Returns the customer VLAN tag (`IBV_WC_EX_WITH_CVLAN`).
    ibv_wc_read_cvlan: read_cvlan -> u16;
    /// Returns the tag of the flow rule that the packet matched (`IBV_WC_EX_WITH_FLOW_TAG`).
    ibv_wc_read_flow_tag: read_flow_tag -> u32;
}

/// Reads the tag-matching information (`IBV_WC_EX_WITH_TM_INFO`).
///
/// # Safety
/// The requirements are those of the other functions of this file. In addition, `tm_info` must be
/// writable.
#[inline]
pub unsafe fn ibv_wc_read_tm_info(cq: *mut ibv_cq_ex, tm_info: *mut ibv_wc_tm_info) {
    // SAFETY: the caller guarantees a current completion and that the provider has set the
    // function.
    unsafe { call!((*cq).read_tm_info, cq, tm_info) }
}
