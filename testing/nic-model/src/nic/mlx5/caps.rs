//! Capabilities and addresses that the device and its port report.

use zerocopy::IntoBytes;

use super::{cq, qp, requester, srq};
use crate::abi::core::{
    ExQueryDeviceResp, GidEntry, QueryDeviceResp, QueryPortResp, QueryPortRespEx,
};
use crate::abi::mlx5::{
    AllocUcontextResp, CMDS_SUPP_UHW_CREATE_AH, CMDS_SUPP_UHW_QUERY_DEVICE, DEVX_CMD_IN,
    DEVX_CMD_OUT, INLINE_MODE_NONE, RESP_CORE_CLOCK_OFFSET, RESP_ECE,
};
use crate::attr::Attrs;
use crate::errno::{Errno, Result};
use crate::network::packet::MULTICAST_QPN;
use crate::nic::{Identity, Shared, link};
use crate::options::Link;

/// Number of bits of a queue pair number below those of its process.
pub(super) const QPN_BITS: u32 = 16;
/// Maximum number of memory keys: the upper 24 bits of a key are its index.
pub(super) const MAX_KEYS: u32 = 1 << 20;
pub(super) const MAX_CQ: u32 = 4000;
pub(super) const MAX_SRQ: u32 = 4000;
pub(super) const COMP_VECTORS: u32 = 2;
/// MAC address of the port, from the locally administered range.
pub(super) const MAC: [u8; 6] = [0x02, 0x00, 0x5e, 0x10, 0x00, 0x01];
/// GUID of the device.
const GUID: [u8; 8] = [0x02, 0x00, 0x5e, 0xff, 0xfe, 0x10, 0x00, 0x01];
/// Version 16.35.1012, two bytes for each part.
const FIRMWARE: u64 = 0x0010_0023_03f4;
/// Size of all device memory, in bytes.
pub(super) const MAX_DM: u64 = 128 * 1024;
/// Frequency of the clock in kHz: 1 cycle is 1 ns.
const CLOCK_KHZ: u64 = 1_000_000;
/// Offset of the clock in its page.
pub(super) const CLOCK_OFFSET: u64 = 0;
/// Entries of the GID table.
const GID_TABLE: u32 = 16;

/// Capabilities (`ibv_device_cap_flags`).
mod cap {
    pub(super) const RC_RNR_NAK_GEN: u32 = 1 << 12;
    pub(super) const PORT_ACTIVE_EVENT: u32 = 1 << 10;
    pub(super) const SYS_IMAGE_GUID: u32 = 1 << 11;
    pub(super) const CHANGE_PHY_PORT: u32 = 1 << 5;
    pub(super) const MEM_WINDOW: u32 = 1 << 17;
    pub(super) const XRC: u32 = 1 << 20;
    pub(super) const MEM_MGT_EXTENSIONS: u32 = 1 << 21;
    pub(super) const MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
}

/// Atomic operations are atomic among the queue pairs of the device.
const ATOMIC_HCA: u32 = 1;

/// Returns the response that opens a context.
pub(super) fn context() -> AllocUcontextResp {
    AllocUcontextResp {
        qp_tab_size: 1 << QPN_BITS,
        bf_reg_size: 512,
        // The provider allocates its doorbell pages one by one.
        tot_bfregs: 0,
        cache_line_size: 64,
        max_sq_desc_sz: 1008,
        max_rq_desc_sz: 512,
        max_send_wqebb: 32_768,
        max_recv_wr: 32_768,
        max_srq_recv_wr: srq::MAX_WR,
        num_ports: 1,
        comp_mask: RESP_CORE_CLOCK_OFFSET | RESP_ECE,
        response_length: 72,
        cqe_version: 1,
        cmds_supp_uhw: CMDS_SUPP_UHW_QUERY_DEVICE | CMDS_SUPP_UHW_CREATE_AH,
        eth_min_inline: INLINE_MODE_NONE,
        clock_info_versions: 1,
        hca_core_clock_offset: CLOCK_OFFSET,
        log_uar_size: 12,
        num_uars_per_page: 1,
        ..AllocUcontextResp::default()
    }
}

pub(super) fn device() -> ExQueryDeviceResp {
    let guid = u64::from_ne_bytes(GUID);
    let base = QueryDeviceResp {
        fw_ver: FIRMWARE,
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX,
        page_size_cap: !0xfff,
        vendor_id: 0x2c9,
        vendor_part_id: 4119,
        max_qp: (1 << QPN_BITS) - 1,
        max_qp_wr: 32_768,
        device_cap_flags: cap::RC_RNR_NAK_GEN
            | cap::PORT_ACTIVE_EVENT
            | cap::SYS_IMAGE_GUID
            | cap::CHANGE_PHY_PORT
            | cap::MEM_WINDOW
            | cap::XRC
            | cap::MEM_MGT_EXTENSIONS
            | cap::MEM_WINDOW_TYPE_2B,
        max_sge: 30,
        max_sge_rd: 30,
        max_cq: MAX_CQ,
        max_cqe: cq::MAX_CQE,
        max_mr: MAX_KEYS,
        max_pd: 1 << 20,
        max_qp_rd_atom: u32::from(qp::MAX_READS),
        max_res_rd_atom: u32::from(qp::MAX_READS) << QPN_BITS,
        max_qp_init_rd_atom: u32::from(qp::MAX_READS),
        atomic_cap: ATOMIC_HCA,
        max_mw: MAX_KEYS,
        max_mcast_grp: 2_097_152,
        max_mcast_qp_attach: 240,
        max_total_mcast_qp_attach: 2_097_152 * 240 / 8,
        max_ah: i32::MAX.cast_unsigned(),
        max_srq: MAX_SRQ,
        max_srq_wr: srq::MAX_WR,
        max_srq_sge: srq::MAX_SGE,
        max_pkeys: 1,
        local_ca_ack_delay: 16,
        phys_port_cnt: 1,
        ..QueryDeviceResp::default()
    };
    ExQueryDeviceResp {
        base,
        timestamp_mask: u64::MAX,
        hca_core_clock: CLOCK_KHZ,
        device_cap_flags_ex: u64::from(base.device_cap_flags),
        max_dm_size: MAX_DM,
        ..ExQueryDeviceResp::default()
    }
}

/// Answers the firmware command that queries capabilities. The model has one of the optional ones:
/// the extension of the attributes of queue pairs, which resets streams of DC.
pub(super) fn answer_query(attrs: &Attrs) -> Result<()> {
    const QUERY_HCA_CAP: u16 = 0x100;
    /// Kind of the general capabilities, with the flag for the current values.
    const GENERAL: u16 = 1;
    const HEADER: usize = 16;
    const QPC_EXTENSION: (usize, u8) = (HEADER + 0x24, 0x20);

    let command: [[u8; 2]; 4] = attrs.read_whole(DEVX_CMD_IN, Errno::EINVAL)?;
    let [opcode, _, _, kind] = command.map(u16::from_be_bytes);
    if opcode != QUERY_HCA_CAP {
        return Err(Errno::EINVAL);
    }
    // Status 0.
    let mut answer = [0_u8; 128];
    if kind == GENERAL {
        answer[QPC_EXTENSION.0] = QPC_EXTENSION.1;
    }
    attrs.write(DEVX_CMD_OUT, &answer)
}

pub(super) fn port(cx: &Shared) -> QueryPortRespEx {
    const GRH_REQUIRED: u8 = 1;
    const CM_SUP: u32 = 1 << 16;
    const IP_BASED_GIDS: u32 = 1 << 26;

    let ethernet = cx.link == Link::Ethernet;
    let lid = u16::from(!ethernet);
    let legacy_resp = QueryPortResp {
        port_cap_flags: if ethernet {
            CM_SUP | IP_BASED_GIDS
        } else {
            CM_SUP
        },
        max_msg_sz: u32::try_from(requester::MAX_MESSAGE).unwrap_or(u32::MAX),
        gid_tbl_len: GID_TABLE,
        lid,
        sm_lid: lid,
        max_vl_num: 4,
        link_layer: if ethernet { 2 } else { 1 },
        flags: if ethernet { GRH_REQUIRED } else { 0 },
        ..link(cx)
    };
    QueryPortRespEx {
        legacy_resp,
        ..QueryPortRespEx::default()
    }
}

/// Returns the GID table of the port.
fn gids(link: Link) -> Vec<GidEntry> {
    const IB: u32 = 0;
    const ROCE_V1: u32 = 1;
    const ROCE_V2: u32 = 2;

    let mut link_local = [0; 16];
    link_local[..2].copy_from_slice(&[0xfe, 0x80]);
    link_local[8..].copy_from_slice(&GUID);
    let entry = |gid_index, gid: [u8; 16], gid_type, netdev_ifindex| {
        let mut entry = GidEntry {
            gid_index,
            port_num: 1,
            gid_type,
            netdev_ifindex,
            ..GidEntry::default()
        };
        entry.gid.as_mut_bytes().copy_from_slice(&gid);
        entry
    };
    if link == Link::InfiniBand {
        return vec![entry(0, link_local, IB, 0)];
    }
    // The interface of the port is the loopback interface, which every host has.
    let lo = 1;
    let mut v4 = [0; 16];
    v4[10..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
    let v6 = std::net::Ipv6Addr::LOCALHOST.octets();
    vec![
        entry(0, link_local, ROCE_V1, lo),
        entry(1, link_local, ROCE_V2, lo),
        entry(2, v4, ROCE_V1, lo),
        entry(3, v4, ROCE_V2, lo),
        entry(4, v6, ROCE_V1, lo),
        entry(5, v6, ROCE_V2, lo),
    ]
}

/// Returns the facts that sysfs and the core report.
pub(crate) fn identity(link: Link) -> Identity {
    Identity {
        name: "mlx5_0",
        node_type: "1: CA",
        guid: GUID,
        firmware: "16.35.1012",
        files: &[("hca_type", "MT4119"), ("board_id", "MODEL0000001")],
        modalias: "pci:v000015B3d00001017sv000015B3sd00000007bc02sc00i00",
        rate: "100 Gb/sec (4X EDR)",
        link_layer: match link {
            Link::InfiniBand => "InfiniBand",
            Link::Ethernet => "Ethernet",
        },
        gids: gids(link),
        qpn_bits: QPN_BITS,
        largest_qpn: MULTICAST_QPN,
        max_keys: MAX_KEYS,
    }
}
