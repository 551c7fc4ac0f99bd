//! `ribinfo devinfo`, with the layout and the names of ibv_devinfo.

use base::error::{Error, Result};
use host::root::Root;
use host::verbs::{Attr, Opened, VerbsDevice, VerbsPort};
use serde::Serialize;

use super::caps;
use super::columns::{field, pad};

const ETHERNET: u8 = 2;

#[derive(Serialize)]
struct Json<'a> {
    hca_id: &'a str,
    transport: &'a str,
    board_id: Option<String>,
    #[serde(flatten)]
    attr: &'a Attr,
    ports: Vec<&'a VerbsPort>,
}

/// A device in JSON, with its attributes or the error of opening it.
#[derive(Serialize)]
#[serde(untagged)]
enum Row<'a> {
    Opened(Json<'a>),
    Failed { hca_id: &'a str, error: &'a str },
}

/// Shows all devices, one device, or one port of each. The status is not 0 if a device cannot be
/// opened.
///
/// # Errors
/// Returns an error if the devices cannot be listed, if the device or port does not exist, or if no
/// device can be opened.
pub(crate) fn show(
    root: &Root,
    verbose: bool,
    device: Option<&str>,
    port: Option<u32>,
    json: bool,
) -> Result<(String, u8)> {
    let verbs = super::verbs(root)?;
    let chosen: Vec<&VerbsDevice> = verbs
        .devices
        .iter()
        .filter(|d| device.is_none_or(|name| d.hca_id == name))
        .collect();
    if chosen.is_empty() {
        return Err(Error::device(match device {
            Some(name) => {
                let names: Vec<_> = verbs
                    .devices
                    .iter()
                    .map(|device| device.hca_id.as_str())
                    .collect();
                format!(
                    "no RDMA device named `{name}`; available: {}",
                    names.join(", ")
                )
            }
            None => "libibverbs lists no device; help: see `ribinfo check`".to_owned(),
        }));
    }
    let open_error = |device: &&VerbsDevice| {
        device
            .opened
            .as_ref()
            .err()
            .map(|error| format!("{}: {error}", device.hca_id))
    };
    let errors: Vec<String> = chosen.iter().filter_map(open_error).collect();
    if errors.len() == chosen.len() {
        return Err(Error::device(errors.join("; ")));
    }
    let status = if errors.is_empty() { 0 } else { super::PROBLEM };
    let mut text = String::new();
    let mut all = Vec::new();
    for device in chosen {
        let opened = match &device.opened {
            Ok(opened) => opened,
            Err(error) => {
                all.push(Row::Failed {
                    hca_id: &device.hca_id,
                    error,
                });
                text += &format!("{}: {error}\n\n", device.hca_id);
                continue;
            }
        };
        let ports: Vec<&VerbsPort> = opened
            .ports
            .iter()
            .filter(|p| port.is_none_or(|n| n == p.port))
            .collect();
        if let (Some(port), true) = (port, ports.is_empty()) {
            return Err(Error::device(format!(
                "{} has no port {port}; available: 1 to {}",
                device.hca_id, opened.attr.phys_port_cnt
            )));
        }
        let board_id = root.value(&format!("/sys/class/infiniband/{}/board_id", device.hca_id));
        if json {
            all.push(Row::Opened(Json {
                hca_id: &device.hca_id,
                transport: &device.transport,
                board_id,
                attr: &opened.attr,
                ports,
            }));
            continue;
        }
        text += &head(device, opened, board_id.as_deref());
        if verbose {
            text += &caps::text(&opened.attr);
        }
        for port in ports {
            text += &port_text(port, verbose, device.transport_code == 0);
        }
    }
    Ok((if json { super::json(&all)? } else { text }, status))
}

fn head(device: &VerbsDevice, opened: &Opened, board_id: Option<&str>) -> String {
    let attr = &opened.attr;
    let mut text = format!("hca_id:\t{}\n", device.hca_id);
    text += &field(
        "transport",
        format!("{} ({})", device.transport, device.transport_code),
    );
    if !attr.fw_ver.is_empty() {
        text += &field("fw_ver", &attr.fw_ver);
    }
    text += &field("node_guid", &attr.node_guid);
    text += &field("sys_image_guid", &attr.sys_image_guid);
    text += &field("vendor_id", format!("0x{:04x}", attr.vendor_id));
    text += &field("vendor_part_id", attr.vendor_part_id);
    text += &field("hw_ver", format!("0x{:X}", attr.hw_ver));
    if let Some(board_id) = board_id {
        text += &field("board_id", board_id);
    }
    text + &field("phys_port_cnt", attr.phys_port_cnt)
}

fn named(names: &[(u32, &'static str)], code: u32, otherwise: &'static str) -> String {
    let name = names
        .iter()
        .find(|(c, _)| *c == code)
        .map_or(otherwise, |(_, name)| name);
    format!("{name} ({code})")
}

fn port_text(port: &VerbsPort, verbose: bool, infiniband: bool) -> String {
    const STATES: &[(u32, &str)] = &[
        (1, "PORT_DOWN"),
        (2, "PORT_INIT"),
        (3, "PORT_ARMED"),
        (4, "PORT_ACTIVE"),
    ];
    const MTUS: &[(u32, &str)] = &[
        (1, "256"),
        (2, "512"),
        (3, "1024"),
        (4, "2048"),
        (5, "4096"),
    ];
    const LAYERS: [&str; 3] = ["Unspecified", "InfiniBand", "Ethernet"];
    let mut text = format!("\t\tport:\t{}\n", port.port);
    let mut line = |name: &str, value: String| text += &pad(3, name, 48, &value);
    line("state", named(STATES, port.state, "invalid state"));
    line("max_mtu", named(MTUS, port.max_mtu, "invalid MTU"));
    line("active_mtu", named(MTUS, port.active_mtu, "invalid MTU"));
    line("sm_lid", port.sm_lid.to_string());
    line("port_lid", port.port_lid.to_string());
    line("port_lmc", format!("0x{:02x}", port.port_lmc));
    line(
        "link_layer",
        LAYERS
            .get(usize::from(port.link_layer))
            .copied()
            .unwrap_or("Unknown")
            .to_owned(),
    );
    if verbose {
        verbose_port(port, infiniband, &mut line);
        text += &port
            .gids
            .iter()
            .map(|gid| gid_text(gid.index, gid.gid, gid.is_v2(), port.link_layer))
            .collect::<String>();
    }
    text + "\n"
}

fn verbose_port(port: &VerbsPort, infiniband: bool, line: &mut impl FnMut(&str, String)) {
    const LANES: &[(u32, &str)] = &[(1, "1"), (2, "2"), (3, "4"), (4, "8"), (5, "15")];
    const WIDTHS: &[(u32, &str)] = &[(1, "1X"), (2, "4X"), (4, "8X"), (8, "12X"), (16, "2X")];
    const SPEEDS: &[(u32, &str)] = &[
        (1, "2.5 Gbps"),
        (2, "5.0 Gbps"),
        (4, "10.0 Gbps"),
        (8, "10.0 Gbps"),
        (16, "14.0 Gbps"),
        (32, "25.0 Gbps"),
        (64, "50.0 Gbps"),
        (128, "100.0 Gbps"),
    ];
    const PHYSICAL: &[(u32, &str)] = &[
        (1, "SLEEP"),
        (2, "POLLING"),
        (3, "DISABLED"),
        (4, "PORT_CONFIGURATION TRAINNING"),
        (5, "LINK_UP"),
        (6, "LINK_ERROR_RECOVERY"),
        (7, "PHY TEST"),
    ];
    line("max_msg_sz", format!("0x{:x}", port.max_msg_sz));
    line("port_cap_flags", format!("0x{:08x}", port.port_cap_flags));
    line("port_cap_flags2", format!("0x{:04x}", port.port_cap_flags2));
    line(
        "max_vl_num",
        named(LANES, port.max_vl_num.into(), "invalid value"),
    );
    line("bad_pkey_cntr", format!("0x{:x}", port.bad_pkey_cntr));
    line("qkey_viol_cntr", format!("0x{:x}", port.qkey_viol_cntr));
    line("sm_sl", port.sm_sl.to_string());
    line("pkey_tbl_len", port.pkey_tbl_len.to_string());
    line("gid_tbl_len", port.gid_tbl_len.to_string());
    line("subnet_timeout", port.subnet_timeout.to_string());
    line("init_type_reply", port.init_type_reply.to_string());
    line(
        "active_width",
        named(WIDTHS, port.active_width.into(), "invalid widthX"),
    );
    line(
        "active_speed",
        named(SPEEDS, port.active_speed, "invalid speed"),
    );
    if infiniband {
        line(
            "phys_state",
            named(PHYSICAL, port.phys_state.into(), "invalid physical state"),
        );
    }
}

/// Returns the line of a GID. Like ibv_devinfo, it omits a GID whose lower half is zero.
fn gid_text(index: u32, gid: std::net::Ipv6Addr, v2: bool, link_layer: u8) -> String {
    if gid.to_bits() & u128::from(u64::MAX) == 0 {
        return String::new();
    }
    let version = match (link_layer == ETHERNET, v2) {
        (false, _) => "",
        (true, true) => ", RoCE v2",
        (true, false) => ", RoCE v1",
    };
    let words = gid.segments().map(|word| format!("{word:04x}")).join(":");
    let gid = if v2 { gid.to_string() } else { words };
    format!("\t\t\tGID[{index:>3}]:\t\t{gid}{version}\n")
}
