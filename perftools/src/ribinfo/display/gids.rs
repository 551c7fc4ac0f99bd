//! `ribinfo gids`: the GID tables.

use base::error::Result;
use host::device::{Device, GidRow, Port};
use host::root::Root;
use serde::Serialize;

#[derive(Serialize)]
struct GidLine<'a> {
    device: &'a str,
    port: u32,
    index: u32,
    gid: String,
    ip: Option<String>,
    #[serde(rename = "type")]
    kind: &'a str,
    netdev: Option<&'a str>,
}

/// Lists the entries of all GID tables.
pub fn show(root: &Root, json: bool) -> Result<String> {
    let devices = super::devices(root)?;
    let rows: Vec<GidLine<'_>> = devices
        .iter()
        .flat_map(|device| device.ports.iter().map(move |port| (device, port)))
        .flat_map(|(device, port)| port.gids.iter().map(move |gid| row(device, port, gid)))
        .collect();
    if json {
        return super::json(&rows);
    }
    let mut text = format!(
        "{:<12}{:<6}{:<7}{:<41}{:<28}{:<10}{}\n",
        "DEV", "PORT", "INDEX", "GID", "IP", "TYPE", "NETDEV"
    );
    for row in &rows {
        let (ip, netdev) = (row.ip.as_deref().unwrap_or("-"), row.netdev.unwrap_or("-"));
        text += &format!(
            "{:<12}{:<6}{:<7}{:<41}{ip:<28}{:<10}{netdev}\n",
            row.device, row.port, row.index, row.gid, row.kind
        );
    }
    Ok(text)
}

fn row<'a>(device: &'a Device, port: &'a Port, row: &'a GidRow) -> GidLine<'a> {
    let ethernet = port.is_ethernet() && !device.is_iwarp();
    // The kernel reports "IB/RoCE v1" on InfiniBand links too. On iWARP, the GID is the hardware
    // address.
    let kind = match (ethernet, row.kind.as_deref()) {
        (true, Some("IB/RoCE v1")) => "RoCE v1",
        (true, Some(kind)) => kind,
        (true, None) => "RoCE",
        (false, _) if device.is_iwarp() => "iWARP",
        (false, _) => "InfiniBand",
    };
    let words = row
        .gid
        .as_ipv6()
        .segments()
        .map(|word| format!("{word:04x}"));
    GidLine {
        device: &device.name,
        port: port.port,
        index: row.index,
        gid: words.join(":"),
        ip: ethernet
            .then(|| row.gid.to_ip().map(|ip| ip.to_string()))
            .flatten(),
        kind,
        netdev: row.netdev.as_deref(),
    }
}
