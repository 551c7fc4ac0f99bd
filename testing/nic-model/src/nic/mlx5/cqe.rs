//! Completion queue entries, as the adapter writes them (`mlx5_cqe64`, `mlx5_err_cqe`).

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Kinds of entries.
pub(super) mod kind {
    pub(crate) const REQ: u8 = 0;
    pub(crate) const RESP_WR_IMM: u8 = 1;
    pub(crate) const RESP_SEND: u8 = 2;
    pub(crate) const RESP_SEND_IMM: u8 = 3;
    pub(crate) const RESP_SEND_INV: u8 = 4;
    pub(crate) const RESIZE: u8 = 5;
    pub(crate) const REQ_ERR: u8 = 13;
    pub(crate) const RESP_ERR: u8 = 14;
}

/// Reason of an error, in the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Syndrome {
    LocalLength = 0x01,
    LocalQpOperation = 0x02,
    LocalProtection = 0x04,
    Flush = 0x05,
    Bind = 0x06,
    RemoteInvalidRequest = 0x12,
    RemoteAccess = 0x13,
    RemoteOperation = 0x14,
    TransportRetryExceeded = 0x15,
    RnrRetryExceeded = 0x16,
}

/// Vendor code of all errors of the model. Firmware has many.
const VENDOR_SYNDROME: u8 = 0x51;

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Cqe {
    pub(super) reserved: [u8; 22],
    pub(super) slid: U16,
    /// Number of the remote queue pair, service level and kind of the route header.
    pub(super) flags_rqpn: U32,
    pub(super) header_types: [u8; 4],
    /// User index of the queue pair or of the shared receive queue.
    pub(super) srqn_uidx: U32,
    /// Immediate data or invalidated key, as the request had it.
    pub(super) imm_inval_pkey: [u8; 4],
    pub(super) app: [u8; 4],
    pub(super) byte_cnt: U32,
    /// In an error entry, the last two bytes are the vendor syndrome and the syndrome.
    pub(super) timestamp: U64,
    pub(super) sop_drop_qpn: U32,
    pub(super) wqe_counter: U16,
    pub(super) signature: u8,
    pub(super) op_own: u8,
}

const _: () = assert!(size_of::<Cqe>() == 64);

impl Cqe {
    /// Returns an entry of a failed request.
    pub(super) fn error(uidx: u32, qpn: u32, counter: u16, opcode: u8, syndrome: Syndrome) -> Self {
        let codes = u64::from(VENDOR_SYNDROME) << 8 | u64::from(syndrome as u8);
        Self {
            srqn_uidx: U32::new(uidx),
            timestamp: U64::new(codes),
            sop_drop_qpn: U32::new(u32::from(opcode) << 24 | qpn),
            wqe_counter: U16::new(counter),
            ..Self::default()
        }
    }
}
