//! The capabilities that `ribinfo devinfo -v` prints, in the layout of ibv_devinfo -v.

use std::fmt::Write;

use host::verbs::Attr;

use super::columns::field;

type Flags = &'static [(u64, &'static str)];

const DEVICE: Flags = &[
    (1, "RESIZE_MAX_WR"),
    (1 << 1, "BAD_PKEY_CNTR"),
    (1 << 2, "BAD_QKEY_CNTR"),
    (1 << 3, "RAW_MULTI"),
    (1 << 4, "AUTO_PATH_MIG"),
    (1 << 5, "CHANGE_PHY_PORT"),
    (1 << 6, "UD_AV_PORT_ENFORCE"),
    (1 << 7, "CURR_QP_STATE_MOD"),
    (1 << 8, "SHUTDOWN_PORT"),
    (1 << 9, "INIT_TYPE"),
    (1 << 10, "PORT_ACTIVE_EVENT"),
    (1 << 11, "SYS_IMAGE_GUID"),
    (1 << 12, "RC_RNR_NAK_GEN"),
    (1 << 13, "SRQ_RESIZE"),
    (1 << 14, "N_NOTIFY_CQ"),
    (1 << 17, "MEM_WINDOW"),
    (1 << 18, "UD_IP_CSUM"),
    (1 << 20, "XRC"),
    (1 << 21, "MEM_MGT_EXTENSIONS"),
    (1 << 23, "MEM_WINDOW_TYPE_2A"),
    (1 << 24, "MEM_WINDOW_TYPE_2B"),
    (1 << 25, "RC_IP_CSUM"),
    (1 << 26, "RAW_IP_CSUM"),
    (1 << 29, "MANAGED_FLOW_STEERING"),
];
const DEVICE_EX: Flags = &[
    (1 << 34, "RAW_SCATTER_FCS"),
    (1 << 36, "PCI_WRITE_END_PADDING"),
];
const ODP: Flags = &[(1, "ODP_SUPPORT"), (1 << 1, "ODP_SUPPORT_IMPLICIT")];
const ODP_TRANSPORT: Flags = &[
    (1, "SUPPORT_SEND"),
    (1 << 1, "SUPPORT_RECV"),
    (1 << 2, "SUPPORT_WRITE"),
    (1 << 3, "SUPPORT_READ"),
    (1 << 4, "SUPPORT_ATOMIC"),
    (1 << 5, "SUPPORT_SRQ"),
];
const RAW_PACKET: Flags = &[
    (1, "C-VLAN stripping offload"),
    (1 << 1, "Scatter FCS offload"),
    (1 << 2, "IP csum offload"),
    (1 << 3, "Delay drop"),
];
const TM: Flags = &[(1, "IBV_TM_CAP_RC")];
/// Bit masks of the QP types `IBV_QPT_RC`, `IBV_QPT_UD` and `IBV_QPT_RAW_PACKET`.
const QPTS: Flags = &[(1 << 8, "SUPPORT_RAW_PACKET"), (1 << 4, "SUPPORT_UD")];
const QPTS_PACING: Flags = &[
    (1 << 8, "SUPPORT_RAW_PACKET"),
    (1 << 4, "SUPPORT_UD"),
    (1 << 2, "SUPPORT_RC"),
];

/// Returns a line for each flag that is set, and one line for all unknown flags.
fn flags(names: Flags, value: u64) -> String {
    let mut text = String::new();
    let mut unknown = value;
    for (flag, name) in names.iter().filter(|(flag, _)| value & flag != 0) {
        let _ = writeln!(text, "\t\t\t\t\t{name}");
        unknown &= !flag;
    }
    if unknown != 0 {
        let _ = writeln!(text, "\t\t\t\t\tUnknown flags: 0x{unknown:X}");
    }
    text
}

fn qpts(names: Flags, value: u32) -> String {
    if value == 0 {
        String::new()
    } else {
        "\t\tsupported_qp:\n".to_owned() + &flags(names, value.into())
    }
}

/// Returns the lines for all capabilities.
pub(super) fn text(a: &Attr) -> String {
    limits(a) + &more_limits(a) + &odp(a) + &offloads(a)
}

fn limits(a: &Attr) -> String {
    let mut text = field("max_mr_size", format!("0x{:x}", a.max_mr_size));
    text += &field("page_size_cap", format!("0x{:x}", a.page_size_cap));
    text += &field("max_qp", a.max_qp);
    text += &field("max_qp_wr", a.max_qp_wr);
    text += &field("device_cap_flags", format!("0x{:08x}", a.device_cap_flags));
    text += &flags(DEVICE, a.device_cap_flags);
    text += &field("max_sge", a.max_sge);
    text += &field("max_sge_rd", a.max_sge_rd);
    text += &field("max_cq", a.max_cq);
    text += &field("max_cqe", a.max_cqe);
    text += &field("max_mr", a.max_mr);
    text += &field("max_pd", a.max_pd);
    text += &field("max_qp_rd_atom", a.max_qp_rd_atom);
    text += &field("max_ee_rd_atom", a.max_ee_rd_atom);
    text += &field("max_res_rd_atom", a.max_res_rd_atom);
    text += &field("max_qp_init_rd_atom", a.max_qp_init_rd_atom);
    text += &field("max_ee_init_rd_atom", a.max_ee_init_rd_atom);
    let atomic = match a.atomic_cap {
        0 => "ATOMIC_NONE",
        1 => "ATOMIC_HCA",
        2 => "ATOMIC_GLOB",
        _ => "invalid atomic capability",
    };
    text + &field("atomic_cap", format!("{atomic} ({})", a.atomic_cap))
}

fn more_limits(a: &Attr) -> String {
    let mut text = field("max_ee", a.max_ee);
    text += &field("max_rdd", a.max_rdd);
    text += &field("max_mw", a.max_mw);
    text += &field("max_raw_ipv6_qp", a.max_raw_ipv6_qp);
    text += &field("max_raw_ethy_qp", a.max_raw_ethy_qp);
    text += &field("max_mcast_grp", a.max_mcast_grp);
    text += &field("max_mcast_qp_attach", a.max_mcast_qp_attach);
    text += &field("max_total_mcast_qp_attach", a.max_total_mcast_qp_attach);
    text += &field("max_ah", a.max_ah);
    text += &field("max_fmr", a.max_fmr);
    if a.max_fmr != 0 {
        text += &field("max_map_per_fmr", a.max_map_per_fmr);
    }
    text += &field("max_srq", a.max_srq);
    if a.max_srq != 0 {
        text += &field("max_srq_wr", a.max_srq_wr);
        text += &field("max_srq_sge", a.max_srq_sge);
    }
    text += &field("max_pkeys", a.max_pkeys);
    text + &field("local_ca_ack_delay", a.local_ca_ack_delay)
}

fn odp(a: &Attr) -> String {
    let transport = |name: &str, caps: u32| {
        let flags = if caps == 0 {
            "\t\t\t\t\tNO SUPPORT\n".to_owned()
        } else {
            flags(ODP_TRANSPORT, caps.into())
        };
        format!("\t{name}:\n{flags}")
    };
    let mut text = "\tgeneral_odp_caps:\n".to_owned() + &flags(ODP, a.odp_general_caps);
    text += &transport("rc_odp_caps", a.rc_odp_caps);
    text += &transport("uc_odp_caps", a.uc_odp_caps);
    text += &transport("ud_odp_caps", a.ud_odp_caps);
    text + &transport("xrc_odp_caps", a.xrc_odp_caps)
}

fn offloads(a: &Attr) -> String {
    let mut text = match a.completion_timestamp_mask {
        0 => "\tcompletion_timestamp_mask not supported\n".to_owned(),
        mask => format!("\tcompletion timestamp_mask:\t\t\t0x{mask:016x}\n"),
    };
    text += &match a.hca_core_clock {
        0 => "\tcore clock not supported\n".to_owned(),
        clock => format!("\thca_core_clock:\t\t\t{clock}kHZ\n"),
    };
    if a.raw_packet_caps != 0 {
        text += "\traw packet caps:\n";
        text += &flags(RAW_PACKET, a.raw_packet_caps.into());
    }
    text += &field(
        "device_cap_flags_ex",
        format!("0x{:X}", a.device_cap_flags_ex),
    );
    // The lower half is device_cap_flags, printed above.
    text += &flags(DEVICE_EX, a.device_cap_flags_ex & !u64::from(u32::MAX));
    let _ = writeln!(text, "\ttso_caps:\n\t\tmax_tso:\t\t\t{}", a.max_tso);
    text += &qpts(
        QPTS,
        if a.max_tso == 0 {
            0
        } else {
            a.tso_supported_qpts
        },
    );
    let _ = writeln!(
        text,
        "\trss_caps:\n\t\tmax_rwq_indirection_tables:\t\t\t{}",
        a.max_rwq_indirection_tables
    );
    let _ = writeln!(
        text,
        "\t\tmax_rwq_indirection_table_size:\t\t\t{}",
        a.max_rwq_indirection_table_size
    );
    let _ = writeln!(
        text,
        "\t\trx_hash_function:\t\t\t\t0x{:x}",
        a.rx_hash_function
    );
    let _ = writeln!(
        text,
        "\t\trx_hash_fields_mask:\t\t\t\t0x{:X}",
        a.rx_hash_fields_mask
    );
    text += &qpts(QPTS, a.rss_supported_qpts);
    let _ = writeln!(text, "\tmax_wq_type_rq:\t\t\t{}", a.max_wq_type_rq);
    let _ = writeln!(
        text,
        "\tpacket_pacing_caps:\n\t\tqp_rate_limit_min:\t{}kbps",
        a.qp_rate_limit_min
    );
    let _ = writeln!(text, "\t\tqp_rate_limit_max:\t{}kbps", a.qp_rate_limit_max);
    text += &qpts(
        QPTS_PACING,
        if a.qp_rate_limit_max == 0 {
            0
        } else {
            a.pacing_supported_qpts
        },
    );
    text += &tags(a);
    if a.max_cq_count != 0 && a.max_cq_period != 0 {
        let _ = write!(
            text,
            "\n\tcq moderation caps:\n\t\tmax_cq_count:\t{}\n\t\tmax_cq_period:\t{} us\n\n",
            a.max_cq_count, a.max_cq_period
        );
    }
    if a.max_dm_size != 0 {
        let _ = write!(
            text,
            "\tmaximum available device memory:\t{}Bytes\n\n",
            a.max_dm_size
        );
    }
    text + &field("num_comp_vectors", a.num_comp_vectors)
}

fn tags(a: &Attr) -> String {
    if a.tm_max_num_tags == 0 {
        return "\ttag matching not supported\n".to_owned();
    }
    format!(
        "\tmax_rndv_hdr_size:\t\t{}\n\tmax_num_tags:\t\t\t{}\n\tmax_ops:\t\t\t{}\n\tmax_sge:\t\t\t{}\n\tflags:\n{}",
        a.tm_max_rndv_hdr_size,
        a.tm_max_num_tags,
        a.tm_max_ops,
        a.tm_max_sge,
        flags(TM, a.tm_flags.into())
    )
}
