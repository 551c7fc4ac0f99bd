//! `ribinfo stat`, in the layout of ibstat. iWARP devices, which ibstat omits, are shown too.

use base::error::{Error, Result};
use host::device::{Device, Port};
use host::root::Root;
use serde::Serialize;

#[derive(Serialize)]
#[allow(clippy::struct_field_names, reason = "the names of ibstat")]
struct Ca<'a> {
    ca: &'a str,
    node_type: &'static str,
    ca_type: &'a str,
    number_of_ports: usize,
    firmware_version: &'a str,
    hardware_version: &'a str,
    node_guid: String,
    system_image_guid: String,
    ports: Vec<CaPort<'a>>,
}

#[derive(Serialize)]
struct CaPort<'a> {
    port: u32,
    state: &'static str,
    physical_state: &'static str,
    rate: String,
    base_lid: u32,
    lmc: u32,
    sm_lid: u32,
    capability_mask: String,
    port_guid: String,
    link_layer: &'a str,
}

/// Shows all devices, one device, or one port of a device.
pub fn show(root: &Root, device: Option<&str>, port: Option<u32>, json: bool) -> Result<String> {
    let devices = super::devices(root)?;
    let chosen: Vec<&Device> = devices
        .iter()
        .filter(|d| device.is_none_or(|name| d.name == name))
        .collect();
    if let (Some(name), true) = (device, chosen.is_empty()) {
        let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
        return Err(Error::device(format!(
            "no RDMA device named `{name}`; available: {}",
            names.join(", ")
        )));
    }
    let mut cas: Vec<Ca<'_>> = chosen.iter().map(|device| ca(device)).collect();
    if let (Some(port), Some(ca)) = (port, cas.first_mut()) {
        let count = ca.number_of_ports;
        ca.ports.retain(|p| p.port == port);
        if ca.ports.is_empty() {
            return Err(Error::device(format!(
                "{} has no port {port}; available: 1 to {count}",
                ca.ca
            )));
        }
    }
    if json {
        return super::json(&cas);
    }
    if let (
        Some(_),
        [
            Ca {
                node_type,
                ca,
                ports,
                ..
            },
        ],
    ) = (port, cas.as_slice())
    {
        let ports: String = ports.iter().map(|port| port_text(port, "", "")).collect();
        return Ok(format!("{node_type}: '{ca}'\n{ports}"));
    }
    Ok(cas.iter().map(ca_text).collect())
}

fn ca(device: &Device) -> Ca<'_> {
    // ibstat has no names for the last three.
    const TYPES: [&str; 8] = [
        "???",
        "CA",
        "Switch",
        "Router",
        "iWARP RNIC",
        "usNIC",
        "usNIC UDP",
        "Unspecified",
    ];
    let guid = |guid: Option<ibverbs::Guid>| format!("0x{:016x}", guid.map_or(0, |guid| guid.0));
    Ca {
        ca: &device.name,
        node_type: name(&TYPES, device.node_type.code),
        ca_type: device.hca_type.as_deref().unwrap_or_default(),
        number_of_ports: device.ports.len(),
        firmware_version: device.fw_ver.as_deref().unwrap_or_default(),
        hardware_version: device.hw_rev.as_deref().unwrap_or_default(),
        node_guid: guid(device.node_guid),
        system_image_guid: guid(device.sys_image_guid),
        ports: device
            .ports
            .iter()
            .map(|port| ca_port(port, guid(port.guid())))
            .collect(),
    }
}

fn ca_port(port: &Port, port_guid: String) -> CaPort<'_> {
    const STATES: [&str; 5] = ["???", "Down", "Initializing", "Armed", "Active"];
    const PHYSICAL: [&str; 8] = [
        "No state change",
        "Sleep",
        "Polling",
        "Disabled",
        "PortConfigurationTraining",
        "LinkUp",
        "LinkErrorRecovery",
        "PhyTest",
    ];
    CaPort {
        port: port.port,
        state: name(&STATES, port.state.code),
        physical_state: name(&PHYSICAL, port.phys_state.code),
        rate: port
            .rate
            .map_or_else(|| "0".to_owned(), |rate| rate.ibstat()),
        base_lid: port.lid,
        lmc: port.lmc,
        sm_lid: port.sm_lid,
        capability_mask: format!("0x{:08x}", port.cap_mask),
        port_guid,
        link_layer: &port.link_layer,
    }
}

fn name(names: &[&'static str], code: u32) -> &'static str {
    usize::try_from(code)
        .ok()
        .and_then(|code| names.get(code))
        .copied()
        .unwrap_or("???")
}

fn ca_text(ca: &Ca<'_>) -> String {
    let kind = ca.node_type;
    let ports: String = ca
        .ports
        .iter()
        .map(|port| port_text(port, "\t", "\t\t"))
        .collect();
    format!(
        "{kind} '{}'\n\t{kind} type: {}\n\tNumber of ports: {}\n\tFirmware version: {}\n\tHardware version: {}\n\tNode GUID: {}\n\tSystem image GUID: {}\n{ports}",
        ca.ca,
        ca.ca_type,
        ca.number_of_ports,
        ca.firmware_version,
        ca.hardware_version,
        ca.node_guid,
        ca.system_image_guid
    )
}

fn port_text(port: &CaPort<'_>, head: &str, indent: &str) -> String {
    let lines = [
        ("State", port.state.to_owned()),
        ("Physical state", port.physical_state.to_owned()),
        ("Rate", port.rate.clone()),
        ("Base lid", port.base_lid.to_string()),
        ("LMC", port.lmc.to_string()),
        ("SM lid", port.sm_lid.to_string()),
        ("Capability mask", port.capability_mask.clone()),
        ("Port GUID", port.port_guid.clone()),
        ("Link layer", port.link_layer.to_owned()),
    ];
    let lines = super::lines(
        lines
            .iter()
            .map(|(name, value)| format!("{indent}{name}: {value}")),
    );
    format!("{head}Port {}:\n{lines}", port.port)
}
