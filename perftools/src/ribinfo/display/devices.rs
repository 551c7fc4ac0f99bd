//! `ribinfo devices`: the attributes that libibverbs reports of devices and ports.

use std::fmt::Write as _;

use base::error::{Error, Result};
use host::root::Root;
use host::verbs::{Attr, Opened, VerbsDevice, VerbsPort};
use ibverbs::{LinkLayer, PortState};
use serde::Serialize;
use serde_json::Value;

/// Attributes that are bits, whose decimal digits say nothing.
const BITS: &[&str] = &[
    "completion_timestamp_mask",
    "device_cap_flags",
    "device_cap_flags_ex",
    "max_mr_size",
    "page_size_cap",
    "port_cap_flags",
    "port_cap_flags2",
    "rx_hash_fields_mask",
    "vendor_id",
];

/// A device with its attributes, or with the error of opening it.
#[derive(Serialize)]
struct DeviceRow<'a> {
    device: &'a str,
    transport: &'a str,
    node_guid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    board_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<&'a Attr>,
    ports: Vec<&'a VerbsPort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Shows all devices, one device, or one port of each. The status is not 0 if a device cannot be
/// opened.
pub fn show(
    root: &Root,
    verbose: bool,
    device: Option<&str>,
    port: Option<u32>,
    json: bool,
) -> Result<(String, u8)> {
    let verbs = super::verbs(root)?;
    let is_chosen = |found: &&VerbsDevice| device.is_none_or(|name| found.hca_id == name);
    let chosen = verbs.devices.iter().filter(is_chosen);
    let rows = chosen.map(|device| row(root, device, port));
    let rows: Vec<DeviceRow<'_>> = rows.collect::<Result<_>>()?;
    if let (Some(name), true) = (device, rows.is_empty()) {
        let names: Vec<&str> = verbs.devices.iter().map(|d| d.hca_id.as_str()).collect();
        return Err(Error::device(format!(
            "no RDMA device named `{name}`; available: {}",
            names.join(", ")
        )));
    }
    let has_failed = rows.iter().any(|row| row.error.is_some());
    let status = if has_failed { super::PROBLEM } else { 0 };
    if json {
        return Ok((super::json(&rows)?, status));
    }
    Ok((rows.iter().map(|row| text(row, verbose)).collect(), status))
}

fn row<'a>(root: &Root, device: &'a VerbsDevice, port: Option<u32>) -> Result<DeviceRow<'a>> {
    let opened = device.opened.as_ref();
    let ports = match opened {
        Ok(opened) => ports(device, opened, port)?,
        Err(_) => Vec::new(),
    };
    Ok(DeviceRow {
        device: &device.hca_id,
        transport: &device.transport,
        node_guid: &device.node_guid,
        board_id: root.value(&format!("/sys/class/infiniband/{}/board_id", device.hca_id)),
        attributes: opened.ok().map(|opened| &opened.attr),
        ports,
        error: opened.err().map(String::as_str),
    })
}

fn ports<'a>(
    device: &VerbsDevice,
    opened: &'a Opened,
    port: Option<u32>,
) -> Result<Vec<&'a VerbsPort>> {
    let is_chosen = |found: &&VerbsPort| port.is_none_or(|number| found.port == number);
    let ports: Vec<&VerbsPort> = opened.ports.iter().filter(is_chosen).collect();
    match port {
        Some(port) if ports.is_empty() => Err(Error::device(format!(
            "{} has no port {port}; available: 1 to {}",
            device.hca_id, opened.attr.phys_port_cnt
        ))),
        _ => Ok(ports),
    }
}

fn text(row: &DeviceRow<'_>, verbose: bool) -> String {
    let mut text = format!("{}  {}", row.device, row.transport);
    if let Some(attributes) = row.attributes.filter(|a| !a.fw_ver.is_empty()) {
        let _ = write!(text, ", firmware {}", attributes.fw_ver);
    }
    let _ = write!(text, ", node GUID {}", row.node_guid);
    if let Some(board) = &row.board_id {
        let _ = write!(text, ", board {board}");
    }
    text.push('\n');
    if let Some(error) = row.error {
        let _ = writeln!(text, "  {error}");
    }
    if let (Some(attributes), true) = (row.attributes, verbose) {
        text += &all_values(attributes, 4);
    }
    for port in &row.ports {
        text += &port_line(port);
        if verbose {
            text += &all_values(port, 6);
        }
    }
    text
}

fn port_line(port: &VerbsPort) -> String {
    let layer = LinkLayer(port.link_layer);
    // An unknown code has no name either.
    let state = PortState(u8::try_from(port.state).unwrap_or(u8::MAX));
    let bytes = |mtu: Option<u32>| mtu.map_or_else(|| "?".to_owned(), |mtu| mtu.to_string());
    let mut line = format!(
        "  port {}  {state}  {layer}  MTU {} of {}",
        port.port,
        bytes(port.active_mtu_bytes()),
        bytes(port.max_mtu_bytes())
    );
    if layer == LinkLayer::INFINIBAND {
        let _ = write!(line, "  LID {}  SM LID {}", port.port_lid, port.sm_lid);
    }
    line + "\n"
}

/// Returns a line for each value of a struct, under the names of the verbs manual pages. The GIDs
/// have a subcommand of their own.
fn all_values(values: &impl Serialize, indent: usize) -> String {
    let Ok(Value::Object(fields)) = serde_json::to_value(values) else {
        return String::new();
    };
    let line = |(name, value): (&String, &Value)| {
        let value = match value {
            Value::Array(_) => return String::new(),
            Value::String(text) => text.clone(),
            number if BITS.contains(&name.as_str()) => {
                format!("{:#x}", number.as_u64().unwrap_or_default())
            }
            number => number.to_string(),
        };
        format!("{:indent$}{name}: {value}\n", "")
    };
    fields.iter().map(line).collect()
}
