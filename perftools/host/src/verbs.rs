//! Verbs attributes of devices and ports, as values that can be saved in a captured tree.

use ibverbs::{Context, PortAttr, caps::DeviceAttrEx};
use serde::{Deserialize, Serialize};

/// The devices that libibverbs lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verbs {
    /// The devices, in the order of libibverbs.
    pub devices: Vec<VerbsDevice>,
    /// The error message if the devices cannot be listed.
    pub error: Option<String>,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerbsDevice {
    /// The name.
    pub hca_id: String,
    /// The transport: `InfiniBand`, `iWARP` …
    pub transport: String,
    /// The code of the transport.
    pub transport_code: i32,
    /// The node GUID, which is known without opening the device.
    pub node_guid: String,
    /// The attributes of the opened device, or the error message of opening it.
    pub opened: Result<Opened, String>,
}

/// The attributes of an opened device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The device attributes, with the field names of `struct ibv_device_attr_ex`.
    pub attr: Attr,
    /// The ports in order.
    pub ports: Vec<VerbsPort>,
}

/// Defines a struct and its conversion from [`DeviceAttrEx`], field by field.
macro_rules! mirror {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty = $from:ident $(. $path:ident)*),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        #[allow(missing_docs, reason = "the names are those of ibv_query_device_ex(3) and ibv_query_port(3)")]
        pub struct $name { $($(#[$field_doc])* pub $field: $ty),* }

        impl $name {
            fn from_raw(raw: &DeviceAttrEx) -> Self {
                let ex = raw;
                let classic = &raw.attr;
                // Not every expansion uses both.
                let _ = (ex, classic);
                Self { $($field: mirror!(@ $from ex classic $(. $path)*)),* }
            }
        }
    };
    (@ ex $ex:ident $classic:ident $(. $path:ident)*) => { $ex $(. $path)* };
    (@ classic $ex:ident $classic:ident $(. $path:ident)*) => { $classic $(. $path)* };
    (@ text $ex:ident $classic:ident $(. $path:ident)*) => { ($classic $(. $path)*).to_string() };
    (@ bits $ex:ident $classic:ident $(. $path:ident)*) => { ($ex $(. $path)*).bits() };
    (@ code $ex:ident $classic:ident $(. $path:ident)*) => { ($ex $(. $path)*).0 };
}

mirror! {
    /// The attributes of a device.
    Attr {
        fw_ver: String = text.fw_ver,
        node_guid: String = text.node_guid,
        sys_image_guid: String = text.sys_image_guid,
        vendor_id: u32 = classic.vendor_id,
        vendor_part_id: u32 = classic.vendor_part_id,
        hw_ver: u32 = classic.hw_ver,
        phys_port_cnt: u8 = classic.phys_port_cnt,
        max_mr_size: u64 = classic.max_mr_size,
        page_size_cap: u64 = classic.page_size_cap,
        max_qp: u32 = classic.max_qp,
        max_qp_wr: u32 = classic.max_qp_wr,
        device_cap_flags: u64 = bits.attr.device_cap_flags,
        max_sge: u32 = classic.max_sge,
        max_sge_rd: u32 = classic.max_sge_rd,
        max_cq: u32 = classic.max_cq,
        max_cqe: u32 = classic.max_cqe,
        max_mr: u32 = classic.max_mr,
        max_pd: u32 = classic.max_pd,
        max_qp_rd_atom: u32 = classic.max_qp_rd_atom,
        max_ee_rd_atom: u32 = classic.max_ee_rd_atom,
        max_res_rd_atom: u32 = classic.max_res_rd_atom,
        max_qp_init_rd_atom: u32 = classic.max_qp_init_rd_atom,
        max_ee_init_rd_atom: u32 = classic.max_ee_init_rd_atom,
        atomic_cap: u32 = code.attr.atomic_cap,
        max_ee: u32 = classic.max_ee,
        max_rdd: u32 = classic.max_rdd,
        max_mw: u32 = classic.max_mw,
        max_raw_ipv6_qp: u32 = classic.max_raw_ipv6_qp,
        max_raw_ethy_qp: u32 = classic.max_raw_ethy_qp,
        max_mcast_grp: u32 = classic.max_mcast_grp,
        max_mcast_qp_attach: u32 = classic.max_mcast_qp_attach,
        max_total_mcast_qp_attach: u32 = classic.max_total_mcast_qp_attach,
        max_ah: u32 = classic.max_ah,
        max_fmr: u32 = classic.max_fmr,
        max_map_per_fmr: u32 = classic.max_map_per_fmr,
        max_srq: u32 = classic.max_srq,
        max_srq_wr: u32 = classic.max_srq_wr,
        max_srq_sge: u32 = classic.max_srq_sge,
        max_pkeys: u16 = classic.max_pkeys,
        local_ca_ack_delay: u8 = classic.local_ca_ack_delay,
        odp_general_caps: u64 = bits.odp.general,
        rc_odp_caps: u32 = bits.odp.rc,
        uc_odp_caps: u32 = bits.odp.uc,
        ud_odp_caps: u32 = bits.odp.ud,
        xrc_odp_caps: u32 = bits.odp.xrc,
        completion_timestamp_mask: u64 = ex.completion_timestamp_mask,
        hca_core_clock: u64 = ex.hca_core_clock,
        device_cap_flags_ex: u64 = bits.device_cap_flags_ex,
        max_tso: u32 = ex.tso.max_tso,
        tso_supported_qpts: u32 = code.tso.supported_qpts,
        rss_supported_qpts: u32 = code.rss.supported_qpts,
        max_rwq_indirection_tables: u32 = ex.rss.max_rwq_indirection_tables,
        max_rwq_indirection_table_size: u32 = ex.rss.max_rwq_indirection_table_size,
        rx_hash_function: u8 = ex.rss.rx_hash_function,
        rx_hash_fields_mask: u64 = bits.rss.rx_hash_fields,
        max_wq_type_rq: u32 = ex.max_wq_type_rq,
        qp_rate_limit_min: u32 = ex.packet_pacing.qp_rate_limit_min,
        qp_rate_limit_max: u32 = ex.packet_pacing.qp_rate_limit_max,
        pacing_supported_qpts: u32 = code.packet_pacing.supported_qpts,
        raw_packet_caps: u32 = bits.raw_packet_caps,
        tm_max_rndv_hdr_size: u32 = ex.tm.max_rndv_hdr_size,
        tm_max_num_tags: u32 = ex.tm.max_num_tags,
        tm_flags: u32 = ex.tm.flags,
        tm_max_ops: u32 = ex.tm.max_ops,
        tm_max_sge: u32 = ex.tm.max_sge,
        max_cq_count: u16 = ex.cq_mod.max_cq_count,
        max_cq_period: u16 = ex.cq_mod.max_cq_period,
        max_dm_size: u64 = ex.max_dm_size,
        num_comp_vectors: u32 = ex.num_comp_vectors,
    }
}

/// The attributes of a port, with the names that ibv_devinfo prints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names are those of ibv_query_port(3)")]
pub struct VerbsPort {
    pub port: u32,
    pub state: u32,
    pub max_mtu: u32,
    pub active_mtu: u32,
    pub sm_lid: u16,
    pub port_lid: u16,
    pub port_lmc: u8,
    pub link_layer: u8,
    pub max_msg_sz: u32,
    pub port_cap_flags: u32,
    pub port_cap_flags2: u16,
    pub max_vl_num: u8,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub sm_sl: u8,
    pub pkey_tbl_len: u16,
    pub gid_tbl_len: u32,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u32,
    pub phys_state: u8,
    /// The entries of the GID table that are in use.
    pub gids: Vec<VerbsGid>,
}

/// An entry of a GID table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerbsGid {
    /// The index.
    pub index: u32,
    /// The GID in the notation of an IPv6 address.
    pub gid: std::net::Ipv6Addr,
    /// The type: 0 InfiniBand, 1 RoCE v1, 2 RoCE v2.
    pub kind: u32,
}

impl VerbsPort {
    fn from_port(context: &Context, port: u8, attr: &PortAttr) -> Self {
        let gids = context.gids(port).unwrap_or_default();
        Self {
            port: u32::from(port),
            state: attr.state.0.into(),
            max_mtu: attr.max_mtu.0,
            active_mtu: attr.active_mtu.0,
            sm_lid: attr.sm_lid.0,
            port_lid: attr.lid.0,
            port_lmc: attr.lmc,
            link_layer: attr.link_layer.0,
            max_msg_sz: attr.max_msg_sz,
            port_cap_flags: attr.port_cap_flags.bits(),
            port_cap_flags2: attr.port_cap_flags2.bits(),
            max_vl_num: attr.max_vl_num,
            bad_pkey_cntr: attr.bad_pkey_cntr,
            qkey_viol_cntr: attr.qkey_viol_cntr,
            sm_sl: attr.sm_sl,
            pkey_tbl_len: attr.pkey_tbl_len,
            gid_tbl_len: attr.gid_tbl_len,
            subnet_timeout: attr.subnet_timeout,
            init_type_reply: attr.init_type_reply,
            active_width: attr.active_width.0,
            active_speed: attr.active_speed.0,
            phys_state: attr.phys_state.0,
            gids: gids
                .iter()
                .map(|entry| VerbsGid {
                    index: entry.index.into(),
                    gid: entry.gid.as_ipv6(),
                    kind: entry.kind.0,
                })
                .collect(),
        }
    }

    /// Returns the active MTU, in bytes.
    pub fn active_mtu_bytes(&self) -> Option<u32> {
        ibverbs::Mtu(self.active_mtu).bytes()
    }

    /// Returns the maximum MTU, in bytes.
    pub fn max_mtu_bytes(&self) -> Option<u32> {
        ibverbs::Mtu(self.max_mtu).bytes()
    }
}

impl VerbsDevice {
    /// Returns a port of the device.
    pub(crate) fn port(&self, port: u32) -> Option<&VerbsPort> {
        self.opened
            .as_ref()
            .ok()?
            .ports
            .iter()
            .find(|p| p.port == port)
    }
}

impl Verbs {
    /// Queries libibverbs on this host.
    pub(crate) fn query() -> Self {
        match ibverbs::Device::list() {
            Ok(devices) => Self {
                devices: devices.iter().map(query_device_attributes).collect(),
                error: None,
            },
            Err(error) => Self {
                devices: Vec::new(),
                error: Some(error.to_string()),
            },
        }
    }

    /// Returns the device with this name.
    pub fn device(&self, name: &str) -> Option<&VerbsDevice> {
        self.devices.iter().find(|device| device.hca_id == name)
    }
}

fn query_device_attributes(device: &ibverbs::Device) -> VerbsDevice {
    let open = || {
        let context = device.open()?;
        let attr = context.query_device_ex()?;
        let ports = (1..=attr.attr.phys_port_cnt)
            .map(|port| {
                Ok(VerbsPort::from_port(
                    &context,
                    port,
                    &context.query_port(port)?,
                ))
            })
            .collect::<ibverbs::Result<_>>()?;
        Ok(Opened {
            attr: Attr::from_raw(&attr),
            ports,
        })
    };
    VerbsDevice {
        hca_id: device.name().to_owned(),
        transport: device.transport().to_string(),
        transport_code: device.transport().0,
        node_guid: device.guid().to_string(),
        opened: open().map_err(|error: ibverbs::Error| error.to_string()),
    }
}
