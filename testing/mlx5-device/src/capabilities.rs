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
    /// General capabilities.
    cmd_hca_cap {
        LOG_MAX_SRQ_SZ = 0x80, 8;
        LOG_MAX_QP_SZ = 0x88, 8;
        LOG_MAX_QP = 0x9b, 5;
        ECE_SUPPORT = 0xa3, 1;
        LOG_MAX_SRQ = 0xab, 5;
        LOG_MAX_CQ_SZ = 0xc8, 8;
        LOG_MAX_CQ = 0xdb, 5;
        LOG_MAX_EQ_SZ = 0xe0, 8;
        LOG_MAX_MKEY = 0xea, 6;
        LOG_MAX_EQ = 0xfc, 4;
        LOG_MAX_RA_REQ_QP = 0x14a, 6;
        LOG_MAX_RA_RES_QP = 0x15a, 6;
        GID_TABLE_SIZE = 0x170, 16;
        VPORT_COUNTERS = 0x181, 1;
        MAX_QP_CNT = 0x186, 10;
        PKEY_TABLE_SIZE = 0x190, 16;
        VPORT_GROUP_MANAGER = 0x1a0, 1;
        IB_VIRT = 0x1a2, 1;
        MCAM_REG = 0x1a9, 1;
        LOCAL_CA_ACK_DELAY = 0x1ab, 5;
        PORT_TYPE = 0x1b6, 2;
        NUM_PORTS = 0x1b8, 8;
        LOG_MAX_MSG = 0x1c3, 5;
        CQE_VERSION = 0x1fc, 4;
        UMR_MODIFY_ENTITY_SIZE_DISABLED = 0x207, 1;
        ATOMIC = 0x21e, 1;
        CQ_RESIZE = 0x221, 1;
        CQ_MODERATION = 0x222, 1;
        IMAICL = 0x231, 1;
        XRC = 0x23c, 1;
        UD = 0x23d, 1;
        UC = 0x23e, 1;
        RC = 0x23f, 1;
        UAR_SZ = 0x24a, 6;
        LOG_PG_SZ = 0x258, 8;
        BF = 0x260, 1;
        DRIVER_VERSION = 0x261, 1;
        LOG_BF_REG_SIZE = 0x26b, 5;
        MAX_WQE_SZ_SQ = 0x290, 16;
        MAX_WQE_SZ_RQ = 0x2b0, 16;
        LOG_MAX_MCG = 0x318, 8;
        LOG_MAX_TRANSPORT_DOMAIN = 0x323, 5;
        LOG_MAX_PD = 0x32b, 5;
        LOG_MAX_XRCD = 0x33b, 5;
        LOG_MAX_SQ = 0x36b, 5;
        MAX_NUM_EQS = 0x470, 16;
        DEVICE_FREQUENCY_KHZ = 0x4e0, 32;
        NUM_OF_UARS_PER_PAGE = 0x520, 32;
    }
}

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

/// The general capabilities.
const GENERAL_VALUES: &[(Field, u64)] = &[
    (cmd_hca_cap::LOG_MAX_SRQ_SZ, 15),
    (cmd_hca_cap::LOG_MAX_QP_SZ, 15),
    (cmd_hca_cap::LOG_MAX_QP, 18),
    (cmd_hca_cap::ECE_SUPPORT, 1),
    (cmd_hca_cap::LOG_MAX_SRQ, 16),
    (cmd_hca_cap::LOG_MAX_CQ_SZ, 22),
    (cmd_hca_cap::LOG_MAX_CQ, 18),
    (cmd_hca_cap::LOG_MAX_EQ_SZ, 22),
    (cmd_hca_cap::LOG_MAX_MKEY, 18),
    (cmd_hca_cap::LOG_MAX_EQ, LOG_MAX_EVENT_QUEUES as u64),
    (cmd_hca_cap::LOG_MAX_RA_REQ_QP, 4),
    (cmd_hca_cap::LOG_MAX_RA_RES_QP, 4),
    (cmd_hca_cap::GID_TABLE_SIZE, GID_TABLE_8),
    (cmd_hca_cap::VPORT_COUNTERS, 1),
    (cmd_hca_cap::MAX_QP_CNT, 256),
    (cmd_hca_cap::PKEY_TABLE_SIZE, PKEY_TABLE_128),
    (cmd_hca_cap::VPORT_GROUP_MANAGER, 1),
    (cmd_hca_cap::IB_VIRT, 1),
    (cmd_hca_cap::MCAM_REG, 1),
    (cmd_hca_cap::LOCAL_CA_ACK_DELAY, 16),
    (cmd_hca_cap::PORT_TYPE, PORT_TYPE_INFINIBAND),
    (cmd_hca_cap::NUM_PORTS, 1),
    (cmd_hca_cap::LOG_MAX_MSG, 30),
    (cmd_hca_cap::CQE_VERSION, 1),
    // The driver then registers memory with a command, and not with a request on a queue.
    (cmd_hca_cap::UMR_MODIFY_ENTITY_SIZE_DISABLED, 1),
    (cmd_hca_cap::ATOMIC, 1),
    (cmd_hca_cap::CQ_RESIZE, 1),
    (cmd_hca_cap::CQ_MODERATION, 1),
    // Memory windows.
    (cmd_hca_cap::IMAICL, 1),
    (cmd_hca_cap::XRC, 1),
    (cmd_hca_cap::UD, 1),
    (cmd_hca_cap::UC, 1),
    (cmd_hca_cap::RC, 1),
    // Logarithm of the size of BAR 0 in MiB.
    (cmd_hca_cap::UAR_SZ, 4),
    (cmd_hca_cap::LOG_PG_SZ, 12),
    (cmd_hca_cap::BF, 1),
    (cmd_hca_cap::DRIVER_VERSION, 1),
    (cmd_hca_cap::LOG_BF_REG_SIZE, 9),
    (cmd_hca_cap::MAX_WQE_SZ_SQ, 1024),
    (cmd_hca_cap::MAX_WQE_SZ_RQ, 512),
    (cmd_hca_cap::LOG_MAX_MCG, 21),
    (cmd_hca_cap::LOG_MAX_TRANSPORT_DOMAIN, 16),
    (cmd_hca_cap::LOG_MAX_PD, 20),
    (cmd_hca_cap::LOG_MAX_XRCD, 20),
    (cmd_hca_cap::LOG_MAX_SQ, 18),
    (cmd_hca_cap::MAX_NUM_EQS, 1 << LOG_MAX_EVENT_QUEUES),
    (cmd_hca_cap::DEVICE_FREQUENCY_KHZ, 1_000_000),
    (cmd_hca_cap::NUM_OF_UARS_PER_PAGE, 1),
];

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
