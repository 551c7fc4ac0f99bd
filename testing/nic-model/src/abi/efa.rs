//! Structures that libefa and the kernel's driver exchange (`rdma/efa-abi.h`).

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

abi! {
    /// `struct ib_uverbs_buffer_desc`.
    struct BufferDesc {
        kind: u32,
        fd: i32,
        flags: u32,
        optional_flags: u32,
        address: u64,
        length: u64,
    }

    struct AllocUcontext {
        comp_mask: u32,
        reserved: u32,
    }

    struct AllocUcontextResp {
        comp_mask: u32,
        cmds_supp_udata_mask: u32,
        sub_cqs_per_cq: u16,
        inline_buf_size: u16,
        max_llq_size: u32,
        max_tx_batch: u16,
        min_sq_wr: u16,
        reserved: u32,
    }

    struct NumberResp {
        comp_mask: u32,
        /// Number of a protection domain or of an address handle.
        number: u16,
        reserved: u16,
    }

    struct CreateCq {
        comp_mask: u32,
        cq_entry_size: u32,
        num_sub_cqs: u16,
        flags: u8,
        reserved: [u8; 5],
    }

    struct CreateCqResp {
        comp_mask: u32,
        reserved: u32,
        q_mmap_key: u64,
        q_mmap_size: u64,
        cq_idx: u16,
        reserved2: u16,
        db_off: u32,
        db_mmap_key: u64,
    }

    struct CreateQp {
        comp_mask: u32,
        rq_ring_size: u32,
        sq_ring_size: u32,
        driver_qp_type: u32,
    }

    struct CreateQpResp {
        comp_mask: u32,
        rq_db_offset: u32,
        sq_db_offset: u32,
        llq_desc_offset: u32,
        rq_mmap_key: u64,
        rq_mmap_size: u64,
        rq_db_mmap_key: u64,
        sq_db_mmap_key: u64,
        llq_desc_mmap_key: u64,
        send_sub_cq_idx: u16,
        recv_sub_cq_idx: u16,
        reserved: u32,
    }

    struct ExQueryDeviceResp {
        comp_mask: u32,
        max_sq_wr: u32,
        max_rq_wr: u32,
        max_sq_sge: u16,
        max_rq_sge: u16,
        max_rdma_size: u32,
        device_caps: u32,
    }
}

const _: () = assert!(
    size_of::<AllocUcontextResp>() == 24
        && size_of::<CreateCqResp>() == 40
        && size_of::<CreateQpResp>() == 64
        && size_of::<ExQueryDeviceResp>() == 24
        && size_of::<BufferDesc>() == 32
);
