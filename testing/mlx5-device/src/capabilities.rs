//! Capabilities of the adapter, each a field of a structure that the driver reads.

use std::collections::BTreeMap;

use crate::layout::{Field, structures};

/// Bytes of the capabilities of a type.
pub(crate) const SIZE: usize = 0x1000;
/// Logarithm of the number of event queues.
pub(crate) const LOG_MAX_EVENT_QUEUES: u32 = 6;

/// Types of capabilities, `enum mlx5_cap_type`.
pub(crate) const GENERAL: u16 = 0x0;
pub(crate) const ATOMIC: u16 = 0x3;

structures! {
    /// Capabilities of atomic operations.
    atomic_caps {
        ATOMIC_REQ_8B_ENDIANNESS_MODE = 0x40, 2;
        SUPPORTED_ATOMIC_REQ_8B_ENDIANNESS_MODE_1 = 0x46, 1;
        ATOMIC_OPERATIONS = 0x90, 16;
        ATOMIC_SIZE_QP = 0xb0, 16;
    }
}

/// Number of entries of the partition key table: 128 times a power of two, whose logarithm this is.
const PKEY_TABLE_128: u64 = 0;
/// Number of entries of the GID table: 8 times a power of two, whose logarithm this is.
const GID_TABLE_8: u64 = 0;
const PORT_TYPE_INFINIBAND: u64 = 0;

/// Declares fields with their values: `NAME = offset, width, value;`, with offsets and widths in
/// bits.
macro_rules! values {
    ($(#[$doc:meta])* $table:ident { $($name:ident = $offset:literal, $width:literal, $value:expr;)+ }) => {
        $(#[$doc])*
        const $table: &[(Field, u64)] = &[$((Field::new($offset, $width), $value)),+];
    };
}

values! {
    /// General capabilities: `cmd_hca_cap`.
    GENERAL_VALUES {
        LOG_MAX_SRQ_SZ = 0x80, 8, 15;
        LOG_MAX_QP_SZ = 0x88, 8, 15;
        LOG_MAX_QP = 0x9b, 5, 18;
        ECE_SUPPORT = 0xa3, 1, 1;
        LOG_MAX_SRQ = 0xab, 5, 16;
        LOG_MAX_CQ_SZ = 0xc8, 8, 22;
        LOG_MAX_CQ = 0xdb, 5, 18;
        LOG_MAX_EQ_SZ = 0xe0, 8, 22;
        LOG_MAX_MKEY = 0xea, 6, 18;
        LOG_MAX_EQ = 0xfc, 4, LOG_MAX_EVENT_QUEUES as u64;
        LOG_MAX_RA_REQ_QP = 0x14a, 6, 4;
        LOG_MAX_RA_RES_QP = 0x15a, 6, 4;
        GID_TABLE_SIZE = 0x170, 16, GID_TABLE_8;
        VPORT_COUNTERS = 0x181, 1, 1;
        MAX_QP_CNT = 0x186, 10, 256;
        PKEY_TABLE_SIZE = 0x190, 16, PKEY_TABLE_128;
        VPORT_GROUP_MANAGER = 0x1a0, 1, 1;
        IB_VIRT = 0x1a2, 1, 1;
        MCAM_REG = 0x1a9, 1, 1;
        LOCAL_CA_ACK_DELAY = 0x1ab, 5, 16;
        PORT_TYPE = 0x1b6, 2, PORT_TYPE_INFINIBAND;
        NUM_PORTS = 0x1b8, 8, 1;
        LOG_MAX_MSG = 0x1c3, 5, 30;
        CQE_VERSION = 0x1fc, 4, 1;
        // The driver then registers memory with a command, and not with a request on a queue.
        UMR_MODIFY_ENTITY_SIZE_DISABLED = 0x207, 1, 1;
        ATOMIC = 0x21e, 1, 1;
        CQ_RESIZE = 0x221, 1, 1;
        CQ_MODERATION = 0x222, 1, 1;
        // Memory windows.
        IMAICL = 0x231, 1, 1;
        XRC = 0x23c, 1, 1;
        UD = 0x23d, 1, 1;
        UC = 0x23e, 1, 1;
        RC = 0x23f, 1, 1;
        // Logarithm of the size of BAR 0 in MiB.
        UAR_SZ = 0x24a, 6, 4;
        LOG_PG_SZ = 0x258, 8, 12;
        BF = 0x260, 1, 1;
        DRIVER_VERSION = 0x261, 1, 1;
        LOG_BF_REG_SIZE = 0x26b, 5, 9;
        MAX_WQE_SZ_SQ = 0x290, 16, 1024;
        MAX_WQE_SZ_RQ = 0x2b0, 16, 512;
        LOG_MAX_MCG = 0x318, 8, 21;
        LOG_MAX_TRANSPORT_DOMAIN = 0x323, 5, 16;
        LOG_MAX_PD = 0x32b, 5, 20;
        LOG_MAX_XRCD = 0x33b, 5, 20;
        LOG_MAX_SQ = 0x36b, 5, 18;
        MAX_NUM_EQS = 0x470, 16, 1 << LOG_MAX_EVENT_QUEUES;
        DEVICE_FREQUENCY_KHZ = 0x4e0, 32, 1_000_000;
        NUM_OF_UARS_PER_PAGE = 0x520, 32, 1;
    }
}

/// Atomic operations: compare and swap, fetch and add, of 8 bytes, with operands and results in the
/// order of the processor.
const ATOMIC_VALUES: &[(Field, u64)] = &[
    (atomic_caps::SUPPORTED_ATOMIC_REQ_8B_ENDIANNESS_MODE_1, 1),
    (atomic_caps::ATOMIC_OPERATIONS, 1 << 0 | 1 << 1),
    (atomic_caps::ATOMIC_SIZE_QP, 1 << 3),
];

/// The types of capabilities that the adapter has.
const TYPES: &[(u16, &[(Field, u64)])] = &[(GENERAL, GENERAL_VALUES), (ATOMIC, ATOMIC_VALUES)];

/// The largest values and the present ones.
#[derive(Debug)]
pub(crate) struct Capabilities {
    maximum: BTreeMap<u16, Vec<u8>>,
    current: BTreeMap<u16, Vec<u8>>,
}

impl Capabilities {
    pub(crate) fn new() -> Self {
        let maximum: BTreeMap<_, _> = TYPES
            .iter()
            .map(|(kind, values)| (*kind, structure(values)))
            .collect();
        Self {
            current: maximum.clone(),
            maximum,
        }
    }

    /// Returns the capabilities of a type.
    pub(crate) fn get(&self, kind: u16, current: bool) -> Option<&[u8]> {
        let capabilities = if current {
            &self.current
        } else {
            &self.maximum
        };
        capabilities.get(&kind).map(Vec::as_slice)
    }

    /// Sets the present capabilities of a type. Returns `false` if the adapter does not have it.
    ///
    /// Of those of atomic operations, only the order of bytes can be set: the driver passes zero in
    /// all other fields (`handle_hca_cap_atomic`).
    pub(crate) fn set(&mut self, kind: u16, capabilities: &[u8]) -> bool {
        let Some(current) = self.current.get_mut(&kind) else {
            return false;
        };
        if kind == ATOMIC {
            let order = atomic_caps::ATOMIC_REQ_8B_ENDIANNESS_MODE;
            order.set(current, order.get(capabilities));
        } else {
            current.copy_from_slice(capabilities);
        }
        true
    }
}

fn structure(values: &[(Field, u64)]) -> Vec<u8> {
    let mut structure = vec![0; SIZE];
    for (field, value) in values {
        field.set(&mut structure, *value);
    }
    structure
}
