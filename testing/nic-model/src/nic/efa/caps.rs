//! Capabilities and addresses that the device and its port report.
//!
//! The driver takes these numbers from the adapter, so they are examples. They are small where
//! libefa keeps 16 bits.

use zerocopy::IntoBytes;

use super::descriptor::{INLINE_SIZE, SEND_SIZE};
use crate::abi::core::{
    ExQueryDeviceResp, GidEntry, QueryDeviceResp, QueryPortResp, QueryPortRespEx, access,
};
use crate::abi::efa::{AllocUcontextResp, ExQueryDeviceResp as UserDevice, SUPP_UDATA, cap};
use crate::nic::{Identity, Shared, link};

/// Number of bits of a queue pair number below those of its process. Numbers have 16 bits.
const QPN_BITS: u32 = 10;
pub(super) const MAX_QP: u32 = (1 << QPN_BITS) - 1;
pub(super) const MAX_CQ: u32 = 1023;
pub(super) const MAX_CQE: u32 = 1 << 15;
/// Address handles have 16 bits, and `0xffff` stands for none.
pub(super) const MAX_AH: u32 = 0xfffe;
/// Keys have 24 bits: 16 for the index and 8 for the variant.
const MAX_KEYS: u32 = 0xffff;
pub(super) const MAX_SQ_WR: u32 = 4096;
pub(super) const MAX_RQ_WR: u32 = 8192;
pub(super) const MAX_SQ_SGE: u16 = 2;
pub(super) const MAX_RQ_SGE: u16 = 3;
pub(super) const SUB_CQS: u16 = 2;
pub(super) const COMP_VECTORS: u32 = 2;
/// Largest packet in bytes, which is also the largest message.
pub(super) const MTU: u32 = 8928;
/// Largest RDMA READ, in bytes.
pub(super) const MAX_RDMA: u32 = 1 << 30;
/// Send requests that the provider may announce at once, in units of 64 bytes.
const MAX_TX_BATCH: u16 = 64;

/// Address of the device, which is its only GID. The lower half is its GUID.
pub(super) const GID: [u8; 16] = [
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x00, 0x5e, 0xff, 0xfe, 0x10, 0x00, 0x0a,
];
const GUID: [u8; 8] = [0x02, 0x00, 0x5e, 0xff, 0xfe, 0x10, 0x00, 0x0a];

const VENDOR: u32 = 0x1d0f;
const PART: u32 = 0xefa1;

pub(super) fn context() -> AllocUcontextResp {
    AllocUcontextResp {
        cmds_supp_udata_mask: SUPP_UDATA,
        sub_cqs_per_cq: SUB_CQS,
        inline_buf_size: INLINE_SIZE,
        max_llq_size: MAX_SQ_WR * u32::from(SEND_SIZE),
        max_tx_batch: MAX_TX_BATCH,
        ..AllocUcontextResp::default()
    }
}

pub(super) fn device() -> ExQueryDeviceResp {
    let guid = u64::from_ne_bytes(GUID);
    let base = QueryDeviceResp {
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: 1 << 40,
        page_size_cap: !0xfff,
        vendor_id: VENDOR,
        vendor_part_id: PART,
        max_qp: MAX_QP,
        max_qp_wr: MAX_SQ_WR,
        max_sge: u32::from(MAX_SQ_SGE),
        max_sge_rd: 1,
        max_cq: MAX_CQ,
        max_cqe: MAX_CQE,
        max_mr: MAX_KEYS,
        max_pd: 0xffff,
        max_ah: MAX_AH,
        max_pkeys: 1,
        phys_port_cnt: 1,
        ..QueryDeviceResp::default()
    };
    ExQueryDeviceResp {
        base,
        ..ExQueryDeviceResp::default()
    }
}

pub(super) fn user_device() -> UserDevice {
    UserDevice {
        max_sq_wr: MAX_SQ_WR,
        max_rq_wr: MAX_RQ_WR,
        max_sq_sge: MAX_SQ_SGE,
        max_rq_sge: MAX_RQ_SGE,
        max_rdma_size: MAX_RDMA,
        device_caps: cap::RDMA_READ
            | cap::RNR_RETRY
            | cap::CQ_NOTIFICATIONS
            | cap::CQ_WITH_SGID
            | cap::COMP_CNTR,
        ..UserDevice::default()
    }
}

/// Access rights of memory regions, besides the optional ones.
pub(super) const ACCESS: u32 = access::LOCAL_WRITE | access::REMOTE_READ;

pub(super) fn port(cx: &Shared) -> QueryPortRespEx {
    let legacy_resp = QueryPortResp {
        max_msg_sz: MTU,
        gid_tbl_len: 1,
        lmc: 1,
        max_vl_num: 1,
        ..link(cx)
    };
    QueryPortRespEx {
        legacy_resp,
        ..QueryPortRespEx::default()
    }
}

/// Returns the facts that sysfs and the core report.
pub(crate) fn identity() -> Identity {
    let mut gid = GidEntry {
        port_num: 1,
        ..GidEntry::default()
    };
    gid.gid.as_mut_bytes().copy_from_slice(&GID);
    Identity {
        name: "efa_0",
        node_type: "7: unspecified",
        guid: GUID,
        firmware: "0.0.0.0",
        files: &[],
        modalias: "pci:v00001D0Fd0000EFA1sv00001D0Fsd0000EFA1bc02sc00i00",
        rate: "100 Gb/sec (4X EDR)",
        link_layer: "Unknown",
        gids: vec![gid],
        qpn_bits: QPN_BITS,
        largest_qpn: 0xffff,
        max_keys: MAX_KEYS,
    }
}
