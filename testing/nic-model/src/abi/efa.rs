//! Structures that libefa and the kernel's driver exchange (`rdma/efa-abi.h`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The provider keeps the limit on requests in a batch.
pub(crate) const COMP_TX_BATCH: u32 = 1;
/// The provider keeps the minimum size of a send queue.
pub(crate) const COMP_MIN_SQ_WR: u32 = 1 << 1;

/// Commands with data of the driver: the query of the device, and the creation of an address
/// handle.
pub(crate) const SUPP_UDATA: u32 = 3;

/// A completion queue with a completion channel.
pub(crate) const CREATE_CQ_WITH_CHANNEL: u8 = 1;
/// A completion queue whose entries have the GID of the sender.
pub(crate) const CREATE_CQ_WITH_SGID: u8 = 1 << 1;
/// The response has the offset of the doorbell.
pub(crate) const CREATE_CQ_RESP_DB_OFF: u32 = 1;

/// Type of a queue pair with scalable reliable datagrams.
pub(crate) const QP_SRD: u32 = 0;

/// Capabilities of the device.
pub(crate) mod cap {
    pub(crate) const RDMA_READ: u32 = 1;
    pub(crate) const RNR_RETRY: u32 = 1 << 1;
    pub(crate) const CQ_NOTIFICATIONS: u32 = 1 << 2;
    pub(crate) const CQ_WITH_SGID: u32 = 1 << 3;
    pub(crate) const COMP_CNTR: u32 = 1 << 8;
}

/// Attributes with the memory of a completion counter: of successes and of failures.
pub(crate) const COMP_CNTR_BUFFERS: [u16; 2] = [0x1000, 0x1001];

/// Memory in a buffer descriptor that is an address of the program.
pub(crate) const BUFFER_VA: u32 = 1;

/// `struct ib_uverbs_buffer_desc`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct BufferDesc {
    pub(crate) kind: u32,
    pub(crate) fd: i32,
    pub(crate) flags: u32,
    pub(crate) optional_flags: u32,
    pub(crate) address: u64,
    pub(crate) length: u64,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct AllocUcontext {
    pub(crate) comp_mask: u32,
    pub(crate) reserved: u32,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct AllocUcontextResp {
    pub(crate) comp_mask: u32,
    pub(crate) cmds_supp_udata_mask: u32,
    pub(crate) sub_cqs_per_cq: u16,
    pub(crate) inline_buf_size: u16,
    pub(crate) max_llq_size: u32,
    pub(crate) max_tx_batch: u16,
    pub(crate) min_sq_wr: u16,
    pub(crate) reserved: u32,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct NumberResp {
    pub(crate) comp_mask: u32,
    /// Number of a protection domain or of an address handle.
    pub(crate) number: u16,
    pub(crate) reserved: u16,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct CreateCq {
    pub(crate) comp_mask: u32,
    pub(crate) cq_entry_size: u32,
    pub(crate) num_sub_cqs: u16,
    pub(crate) flags: u8,
    pub(crate) reserved: [u8; 5],
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct CreateCqResp {
    pub(crate) comp_mask: u32,
    pub(crate) reserved: u32,
    pub(crate) q_mmap_key: u64,
    pub(crate) q_mmap_size: u64,
    pub(crate) cq_idx: u16,
    pub(crate) reserved2: u16,
    pub(crate) db_off: u32,
    pub(crate) db_mmap_key: u64,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct CreateQp {
    pub(crate) comp_mask: u32,
    pub(crate) rq_ring_size: u32,
    pub(crate) sq_ring_size: u32,
    pub(crate) driver_qp_type: u32,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct CreateQpResp {
    pub(crate) comp_mask: u32,
    pub(crate) rq_db_offset: u32,
    pub(crate) sq_db_offset: u32,
    pub(crate) llq_desc_offset: u32,
    pub(crate) rq_mmap_key: u64,
    pub(crate) rq_mmap_size: u64,
    pub(crate) rq_db_mmap_key: u64,
    pub(crate) sq_db_mmap_key: u64,
    pub(crate) llq_desc_mmap_key: u64,
    pub(crate) send_sub_cq_idx: u16,
    pub(crate) recv_sub_cq_idx: u16,
    pub(crate) reserved: u32,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ExQueryDeviceResp {
    pub(crate) comp_mask: u32,
    pub(crate) max_sq_wr: u32,
    pub(crate) max_rq_wr: u32,
    pub(crate) max_sq_sge: u16,
    pub(crate) max_rq_sge: u16,
    pub(crate) max_rdma_size: u32,
    pub(crate) device_caps: u32,
}

const _: () = assert!(
    size_of::<AllocUcontextResp>() == 24
        && size_of::<CreateCqResp>() == 40
        && size_of::<CreateQpResp>() == 64
        && size_of::<ExQueryDeviceResp>() == 24
        && size_of::<BufferDesc>() == 32
);
