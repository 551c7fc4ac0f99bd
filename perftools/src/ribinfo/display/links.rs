//! `ribinfo links`, in the layout of `rdma link`.

use base::error::Result;
use host::device::{Device, Port};
use host::root::Root;
use serde::Serialize;

#[derive(Serialize)]
struct LinkRow<'a> {
    ifname: &'a str,
    port: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    subnet_prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sm_lid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lmc: Option<u32>,
    state: &'a str,
    physical_state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    netdev: Option<&'a str>,
    link_layer: &'a str,
    rate: Option<String>,
}

/// Lists the links of all ports.
pub fn show(root: &Root, json: bool) -> Result<String> {
    let devices = super::devices(root)?;
    let rows: Vec<LinkRow<'_>> = devices
        .iter()
        .flat_map(|device| device.ports.iter().map(move |port| row(device, port)))
        .collect();
    if json {
        return super::json(&rows);
    }
    Ok(rows.iter().map(line).collect())
}

fn row<'a>(device: &'a Device, port: &'a Port) -> LinkRow<'a> {
    let fabric = port.is_infiniband();
    let prefix = port.subnet_prefix().filter(|_| fabric);
    LinkRow {
        ifname: &device.name,
        port: port.port,
        subnet_prefix: prefix.map(|prefix| ibverbs::Guid(prefix).to_string()),
        lid: fabric.then_some(port.lid),
        sm_lid: fabric.then_some(port.sm_lid),
        lmc: fabric.then_some(port.lmc),
        state: &port.state.name,
        physical_state: physical(port.phys_state.code).to_owned(),
        netdev: port.netdev.as_deref(),
        link_layer: &port.link_layer,
        rate: port.rate.map(|rate| rate.to_string()),
    }
}

fn physical(code: u32) -> &'static str {
    const NAMES: [&str; 8] = [
        "NOP",
        "SLEEP",
        "POLLING",
        "DISABLED",
        "ARMED",
        "LINK_UP",
        "LINK_ERROR_RECOVER",
        "PHY_TEST",
    ];
    usize::try_from(code)
        .ok()
        .and_then(|code| NAMES.get(code))
        .copied()
        .unwrap_or("UNKNOWN")
}

fn line(row: &LinkRow<'_>) -> String {
    let mut text = format!("link {}/{} ", row.ifname, row.port);
    let fields = [
        ("subnet_prefix", row.subnet_prefix.clone()),
        ("lid", row.lid.map(|n| n.to_string())),
        ("sm_lid", row.sm_lid.map(|n| n.to_string())),
        ("lmc", row.lmc.map(|n| n.to_string())),
        ("state", Some(row.state.to_owned())),
        ("physical_state", Some(row.physical_state.clone())),
        ("netdev", row.netdev.map(str::to_owned)),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            text += &format!("{name} {value} ");
        }
    }
    text + "\n"
}
