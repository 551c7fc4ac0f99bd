//! The ioctl of verbs and the numbers of its objects, methods and attributes
//! (`rdma/rdma_user_ioctl_cmds.h`, `rdma/ib_user_ioctl_cmds.h`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Request code of the ioctl: `_IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)`.
pub(crate) const RDMA_VERBS_IOCTL: u64 = 0xc018_1b01;

/// Flag of a valid output attribute, set by the kernel.
pub(crate) const ATTR_F_VALID_OUTPUT: u16 = 2;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) length: u16,
    pub(crate) object_id: u16,
    pub(crate) method_id: u16,
    pub(crate) num_attrs: u16,
    pub(crate) reserved1: u64,
    pub(crate) driver_id: u32,
    pub(crate) reserved2: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Attr {
    pub(crate) attr_id: u16,
    pub(crate) len: u16,
    pub(crate) flags: u16,
    /// `elem_id` of an attribute that is an enumeration.
    pub(crate) elem_id: u8,
    pub(crate) reserved: u8,
    pub(crate) data: u64,
}

const _: () = assert!(size_of::<Header>() == 24 && size_of::<Attr>() == 16);

pub(crate) mod object {
    pub(crate) const DEVICE: u16 = 0;
    pub(crate) const PD: u16 = 1;
    pub(crate) const CQ: u16 = 3;
    pub(crate) const QP: u16 = 4;
    pub(crate) const SRQ: u16 = 5;
    pub(crate) const AH: u16 = 6;
    pub(crate) const MR: u16 = 7;
    pub(crate) const MW: u16 = 8;
    pub(crate) const XRCD: u16 = 10;
    pub(crate) const DM: u16 = 14;
    pub(crate) const ASYNC_EVENT: u16 = 16;
    pub(crate) const DMAH: u16 = 17;
    pub(crate) const DMABUF: u16 = 18;
    pub(crate) const COMP_CNTR: u16 = 19;
    /// First object of the drivers' name space.
    pub(crate) const DRIVER: u16 = 0x1000;
}

/// Driver data of a method.
pub(crate) const UHW_IN: u16 = 0x1000;
pub(crate) const UHW_OUT: u16 = 0x1001;

pub(crate) mod device {
    pub(crate) const INVOKE_WRITE: u16 = 0;
    pub(crate) const CORE_IN: u16 = 0;
    pub(crate) const CORE_OUT: u16 = 1;
    pub(crate) const WRITE_CMD: u16 = 2;

    pub(crate) const QUERY_PORT: u16 = 2;
    pub(crate) const QUERY_PORT_PORT_NUM: u16 = 0;
    pub(crate) const QUERY_PORT_RESP: u16 = 1;

    pub(crate) const GET_CONTEXT: u16 = 3;
    /// Also the query of an open context, which a second `ibv_context` imports.
    pub(crate) const QUERY_CONTEXT: u16 = 4;
    pub(crate) const CONTEXT_NUM_COMP_VECTORS: u16 = 0;
    pub(crate) const CONTEXT_CORE_SUPPORT: u16 = 1;

    pub(crate) const QUERY_GID_TABLE: u16 = 5;
    pub(crate) const GID_TABLE_ENTRY_SIZE: u16 = 0;
    pub(crate) const GID_TABLE_FLAGS: u16 = 1;
    pub(crate) const GID_TABLE_RESP_ENTRIES: u16 = 2;
    pub(crate) const GID_TABLE_RESP_NUM_ENTRIES: u16 = 3;

    pub(crate) const QUERY_GID_ENTRY: u16 = 6;
    pub(crate) const GID_ENTRY_PORT: u16 = 0;
    pub(crate) const GID_ENTRY_GID_INDEX: u16 = 1;
    pub(crate) const GID_ENTRY_RESP_ENTRY: u16 = 3;

    pub(crate) const QUERY_PORT_SPEED: u16 = 7;
    pub(crate) const PORT_SPEED_PORT_NUM: u16 = 0;
    pub(crate) const PORT_SPEED_RESP: u16 = 1;

    pub(crate) const QUERY_COMP_CNTR_CAPS: u16 = 8;
    pub(crate) const COMP_CNTR_MAX_COUNTERS: u16 = 0;
    pub(crate) const COMP_CNTR_MAX_VALUE: u16 = 1;
    pub(crate) const COMP_CNTR_QP_ATTACH_OPS: u16 = 2;
}

pub(crate) mod cq {
    pub(crate) const CREATE: u16 = 0;
    pub(crate) const HANDLE: u16 = 0;
    pub(crate) const CQE: u16 = 1;
    pub(crate) const USER_HANDLE: u16 = 2;
    pub(crate) const COMP_CHANNEL: u16 = 3;
    pub(crate) const COMP_VECTOR: u16 = 4;
    pub(crate) const FLAGS: u16 = 5;
    pub(crate) const RESP_CQE: u16 = 6;

    pub(crate) const DESTROY: u16 = 1;
    pub(crate) const DESTROY_RESP: u16 = 1;
}

pub(crate) mod qp {
    pub(crate) const CREATE: u16 = 0;
    pub(crate) const HANDLE: u16 = 0;
    pub(crate) const XRCD_HANDLE: u16 = 1;
    pub(crate) const PD_HANDLE: u16 = 2;
    pub(crate) const SRQ_HANDLE: u16 = 3;
    pub(crate) const SEND_CQ_HANDLE: u16 = 4;
    pub(crate) const RECV_CQ_HANDLE: u16 = 5;
    pub(crate) const USER_HANDLE: u16 = 7;
    pub(crate) const CAP: u16 = 8;
    pub(crate) const TYPE: u16 = 9;
    pub(crate) const FLAGS: u16 = 10;
    pub(crate) const SOURCE_QPN: u16 = 11;
    pub(crate) const RESP_CAP: u16 = 13;
    pub(crate) const RESP_QP_NUM: u16 = 14;

    pub(crate) const DESTROY: u16 = 1;
    pub(crate) const DESTROY_RESP: u16 = 1;

    pub(crate) const ATTACH_COMP_CNTR: u16 = 2;
    pub(crate) const ATTACH_HANDLE: u16 = 0;
    pub(crate) const ATTACH_CNTR_HANDLE: u16 = 1;
    pub(crate) const ATTACH_OP_MASK: u16 = 2;
}

pub(crate) mod srq {
    pub(crate) const CREATE: u16 = 0;
    pub(crate) const HANDLE: u16 = 0;
    pub(crate) const PD_HANDLE: u16 = 1;
    pub(crate) const XRCD_HANDLE: u16 = 2;
    pub(crate) const CQ_HANDLE: u16 = 3;
    pub(crate) const USER_HANDLE: u16 = 4;
    pub(crate) const MAX_WR: u16 = 5;
    pub(crate) const MAX_SGE: u16 = 6;
    pub(crate) const LIMIT: u16 = 7;
    pub(crate) const TYPE: u16 = 9;
    pub(crate) const RESP_MAX_WR: u16 = 11;
    pub(crate) const RESP_MAX_SGE: u16 = 12;
    pub(crate) const RESP_SRQ_NUM: u16 = 13;

    pub(crate) const DESTROY: u16 = 1;
    pub(crate) const DESTROY_RESP: u16 = 1;
}

pub(crate) mod mr {
    pub(crate) const DM_MR_REG: u16 = 0;
    pub(crate) const DM_HANDLE: u16 = 0;
    pub(crate) const DM_OFFSET: u16 = 1;
    pub(crate) const DM_LENGTH: u16 = 2;
    pub(crate) const DM_PD_HANDLE: u16 = 3;
    pub(crate) const DM_ACCESS_FLAGS: u16 = 4;
    pub(crate) const DM_DM_HANDLE: u16 = 5;
    pub(crate) const DM_RESP_LKEY: u16 = 6;
    pub(crate) const DM_RESP_RKEY: u16 = 7;

    pub(crate) const DESTROY: u16 = 1;

    pub(crate) const ADVISE: u16 = 2;

    pub(crate) const QUERY: u16 = 3;
    pub(crate) const QUERY_HANDLE: u16 = 0;
    pub(crate) const QUERY_RESP_LKEY: u16 = 1;
    pub(crate) const QUERY_RESP_RKEY: u16 = 2;
    pub(crate) const QUERY_RESP_LENGTH: u16 = 3;
    pub(crate) const QUERY_RESP_IOVA: u16 = 4;

    pub(crate) const REG_DMABUF: u16 = 4;
    pub(crate) const DMABUF_HANDLE: u16 = 0;
    pub(crate) const DMABUF_PD_HANDLE: u16 = 1;
    pub(crate) const DMABUF_OFFSET: u16 = 2;
    pub(crate) const DMABUF_LENGTH: u16 = 3;
    pub(crate) const DMABUF_IOVA: u16 = 4;
    pub(crate) const DMABUF_FD: u16 = 5;
    pub(crate) const DMABUF_ACCESS_FLAGS: u16 = 6;
    pub(crate) const DMABUF_RESP_LKEY: u16 = 7;
    pub(crate) const DMABUF_RESP_RKEY: u16 = 8;

    pub(crate) const REG: u16 = 5;
    pub(crate) const REG_HANDLE: u16 = 0;
    pub(crate) const REG_PD_HANDLE: u16 = 1;
    pub(crate) const REG_DMA_HANDLE: u16 = 2;
    pub(crate) const REG_IOVA: u16 = 3;
    pub(crate) const REG_ADDR: u16 = 4;
    pub(crate) const REG_LENGTH: u16 = 5;
    pub(crate) const REG_ACCESS_FLAGS: u16 = 6;
    pub(crate) const REG_FD: u16 = 7;
    pub(crate) const REG_FD_OFFSET: u16 = 8;
    pub(crate) const REG_RESP_LKEY: u16 = 9;
    pub(crate) const REG_RESP_RKEY: u16 = 10;
}

pub(crate) mod dm {
    pub(crate) const ALLOC: u16 = 0;
    pub(crate) const HANDLE: u16 = 0;
    pub(crate) const LENGTH: u16 = 1;

    pub(crate) const FREE: u16 = 1;
}

/// DMA handles.
pub(crate) mod dmah {
    pub(crate) const ALLOC: u16 = 0;
    pub(crate) const HANDLE: u16 = 0;
    pub(crate) const CPU_ID: u16 = 1;
    pub(crate) const TPH_MEM_TYPE: u16 = 2;
    pub(crate) const PH: u16 = 3;

    pub(crate) const FREE: u16 = 1;
}

/// dma-bufs of memory of the device.
pub(crate) mod dmabuf {
    pub(crate) const ALLOC: u16 = 0;
    pub(crate) const HANDLE: u16 = 0;
    pub(crate) const PGOFF: u16 = 1;
}

/// Completion counters.
pub(crate) mod comp_cntr {
    pub(crate) const CREATE: u16 = 0;
    pub(crate) const HANDLE: u16 = 0;

    pub(crate) const DESTROY: u16 = 1;

    pub(crate) const MODIFY: u16 = 2;
    pub(crate) const ENTRY: u16 = 1;
    pub(crate) const OP: u16 = 2;
    pub(crate) const VALUE: u16 = 3;

    pub(crate) const READ: u16 = 3;
}
