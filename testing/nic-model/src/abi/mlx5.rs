//! Driver data and driver methods of mlx5 (`rdma/mlx5-abi.h`, `rdma/mlx5_user_ioctl_cmds.h`).

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(crate) const OBJECT_UAR: u16 = 0x1008;
pub(crate) const UAR_ALLOC: u16 = 0x1000;
pub(crate) const UAR_DESTROY: u16 = 0x1001;
pub(crate) const UAR_HANDLE: u16 = 0x1000;
pub(crate) const UAR_MMAP_OFFSET: u16 = 0x1002;
pub(crate) const UAR_MMAP_LENGTH: u16 = 0x1003;
pub(crate) const UAR_PAGE_ID: u16 = 0x1004;

pub(crate) const OBJECT_DEVX: u16 = 0x1000;
pub(crate) const DEVX_OTHER: u16 = 0x1000;
pub(crate) const DEVX_CMD_IN: u16 = 0x1000;
pub(crate) const DEVX_CMD_OUT: u16 = 0x1001;
pub(crate) const OBJECT_DEVX_OBJ: u16 = 0x1001;
pub(crate) const DEVX_OBJ_MODIFY: u16 = 0x1002;
pub(crate) const DEVX_OBJ_MODIFY_CMD_IN: u16 = 0x1001;
pub(crate) const DEVX_OBJ_MODIFY_CMD_OUT: u16 = 0x1002;
/// Opcode of [`Rts2RtsQp`].
pub(crate) const RTS2RTS_QP: u16 = 0x505;

/// Response of the query of a context.
pub(crate) const QUERY_CONTEXT_RESP: u16 = 0x1000;

/// Query of a protection domain, for a second context.
pub(crate) const PD_QUERY: u16 = 0x1000;
pub(crate) const QUERY_PD_HANDLE: u16 = 0x1000;
pub(crate) const QUERY_PD_PDN: u16 = 0x1001;

/// Query of device memory, for a second context.
pub(crate) const DM_QUERY: u16 = 0x1001;
pub(crate) const QUERY_DM_HANDLE: u16 = 0x1000;
pub(crate) const QUERY_DM_START_OFFSET: u16 = 0x1001;
pub(crate) const QUERY_DM_PAGE_INDEX: u16 = 0x1002;
pub(crate) const QUERY_DM_LENGTH: u16 = 0x1003;

pub(crate) const DM_START_OFFSET: u16 = 0x1000;
pub(crate) const DM_PAGE_INDEX: u16 = 0x1001;
pub(crate) const DM_TYPE: u16 = 0x1002;

/// Commands of mmap: the upper bits of the page offset.
pub(crate) const MMAP_CORE_CLOCK: u64 = 5;
pub(crate) const MMAP_CLOCK_INFO: u64 = 7;
pub(crate) const MMAP_DEVICE_MEM: u64 = 8;

pub(crate) const RESP_CORE_CLOCK_OFFSET: u32 = 1;
pub(crate) const RESP_ECE: u32 = 4;
pub(crate) const CMDS_SUPP_UHW_QUERY_DEVICE: u8 = 1;
pub(crate) const CMDS_SUPP_UHW_CREATE_AH: u8 = 2;
pub(crate) const INLINE_MODE_NONE: u8 = 1;

pub(crate) const QP_FLAG_SIGNATURE: u32 = 1 << 0;
pub(crate) const QP_FLAG_SCATTER_CQE: u32 = 1 << 1;
pub(crate) const QP_FLAG_TYPE_DCT: u32 = 1 << 4;
pub(crate) const QP_FLAG_TYPE_DCI: u32 = 1 << 5;
pub(crate) const QP_FLAG_DCI_STREAM: u32 = 1 << 11;

abi! {
    struct AllocUcontextResp {
        qp_tab_size: u32,
        bf_reg_size: u32,
        tot_bfregs: u32,
        cache_line_size: u32,
        max_sq_desc_sz: u16,
        max_rq_desc_sz: u16,
        max_send_wqebb: u32,
        max_recv_wr: u32,
        max_srq_recv_wr: u32,
        num_ports: u16,
        flow_action_flags: u16,
        comp_mask: u32,
        response_length: u32,
        cqe_version: u8,
        cmds_supp_uhw: u8,
        eth_min_inline: u8,
        clock_info_versions: u8,
        hca_core_clock_offset: u64,
        log_uar_size: u32,
        num_uars_per_page: u32,
        num_dyn_bfregs: u32,
        dump_fill_mkey: u32,
    }
}

/// The firmware command that changes a queue pair in RTS, up to the last field that is used here.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Rts2RtsQp {
    pub(crate) opcode: U16,
    pub(crate) reserved: [u8; 6],
    /// Number of the queue pair. The highest bit is set if the fields of the extension are valid.
    pub(crate) qpn: U32,
    pub(crate) other_fields: [u8; 0xfc],
    /// Fields of the extension to change.
    pub(crate) extension_mask: U64,
    pub(crate) reserved2: [u8; 2],
    pub(crate) dci_stream: U16,
}

const _: () = assert!(size_of::<Rts2RtsQp>() == 0x114);

abi! {
    /// Largest numbers of streams of a DC initiator, as powers of 2.
    struct DciStreamsCaps {
        max_log_concurrent: u8,
        max_log_errored: u8,
    }

    struct QueryDeviceResp {
        comp_mask: u32,
        response_length: u32,
        /// Segmentation, receive hashing, compressed completions, packet pacing, multi-packet
        /// requests, parsing, striding receives and tunnels, which the model lacks.
        absent: [u64; 11],
        tunnel_offloads: u32,
        dci_streams: DciStreamsCaps,
        reserved: u16,
    }

    struct CreateCq {
        buf_addr: u64,
        db_addr: u64,
        cqe_size: u32,
        cqe_comp_en: u8,
        cqe_comp_res_format: u8,
        flags: u16,
        uar_page_index: u16,
        reserved0: u16,
        reserved1: u32,
    }

    struct ResizeCq {
        buf_addr: u64,
        cqe_size: u16,
        reserved0: u16,
        reserved1: u32,
    }

    struct CreateSrq {
        buf_addr: u64,
        db_addr: u64,
        flags: u32,
        reserved0: u32,
        uidx: u32,
        reserved1: u32,
    }

    /// Response of the creation of a completion queue or of a shared receive queue: its number.
    struct NumberResp {
        number: u32,
        reserved: u32,
    }

    struct CreateQp {
        buf_addr: u64,
        db_addr: u64,
        sq_wqe_count: u32,
        rq_wqe_count: u32,
        rq_wqe_shift: u32,
        flags: u32,
        uidx: u32,
        bfreg_index: u32,
        /// Address of the send queue of a raw packet queue pair, or access key of a DC target.
        access_key: u64,
        ece_options: u32,
        /// Numbers of concurrent and of failed streams, as powers of 2.
        dci_streams: [u8; 2],
        reserved: u16,
    }

    struct CreateQpResp {
        bfreg_index: u32,
        ece_options: u32,
        comp_mask: u32,
        tirn: u32,
        tisn: u32,
        rqn: u32,
        sqn: u32,
        reserved1: u32,
        tir_icm_addr: u64,
    }

    struct ModifyQp {
        comp_mask: u32,
        max_burst_sz: u32,
        typical_pkt_sz: u16,
        reserved: u16,
        ece_options: u32,
    }

    struct ModifyQpResp {
        response_length: u32,
        dctn: u32,
        ece_options: u32,
        reserved: u32,
    }

    struct CreateAhResp {
        response_length: u32,
        dmac: [u8; 6],
        reserved: [u8; 6],
    }

    /// The page that converts cycles to wall-clock time (`mlx5_ib_clock_info`).
    struct ClockInfo {
        sign: u32,
        resv: u32,
        nsec: u64,
        cycles: u64,
        frac: u64,
        mult: u32,
        shift: u32,
        mask: u64,
        overflow_period: u64,
    }
}

const _: () = assert!(
    size_of::<AllocUcontextResp>() == 72
        && size_of::<CreateQp>() == 56
        && size_of::<CreateCq>() == 32
        && size_of::<ModifyQp>() == 16
        && size_of::<ModifyQpResp>() == 16
);
