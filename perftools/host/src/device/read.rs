//! Reads devices from the files in `/sys/class`.

use std::net::Ipv6Addr;

use base::peer_text::printable;
use ibverbs::{Gid, Guid};

use super::types::{Device, GidRow, NamedCode, PciDevice, PciLink, Port};
use crate::rate::Rate;
use crate::root::{Root, unsigned};

const MAD: &str = "/sys/class/infiniband_mad";

/// Returns the devices, sorted by name.
pub fn all(root: &Root) -> Vec<Device> {
    root.list("/sys/class/infiniband")
        .into_iter()
        .map(|name| read(root, name))
        .collect()
}

/// Returns the PCI devices that are network adapters.
pub(crate) fn network_adapters(root: &Root) -> Vec<PciDevice> {
    const BUS: &str = "/sys/bus/pci/devices";
    let read = |slot: String| {
        let value = |file: &str| root.value(&format!("{BUS}/{slot}/{file}"));
        // Class 0x02 is that of network controllers.
        value("class").filter(|class| class.starts_with("0x02"))?;
        Some(PciDevice {
            vendor: value("vendor")?,
            device: value("device")?,
            driver: root.link(&format!("{BUS}/{slot}/driver")),
            slot,
        })
    };
    root.list(BUS).into_iter().filter_map(read).collect()
}

/// Parses a GUID such as `f034:d4ff:fea2:9021`.
pub fn parse_guid(text: &str) -> Option<Guid> {
    let mut words = text.trim().split(':');
    let mut guid = 0;
    for _ in 0..4 {
        let word = words
            .next()
            .filter(|w| w.len() == 4 && w.bytes().all(|b| b.is_ascii_hexdigit()))?;
        guid = guid << 16 | u64::from_str_radix(word, 16).ok()?;
    }
    words.next().is_none().then_some(Guid(guid))
}

/// Returns the value of a file. A captured tree can contain any characters, and they are printed.
fn printable_value(root: &Root, path: &str) -> Option<String> {
    root.value(path).map(|value| printable(&value))
}

fn read(root: &Root, name: String) -> Device {
    let value = |file: &str| printable_value(root, &format!("/sys/class/infiniband/{name}/{file}"));
    let guid = |file: &str| value(file).and_then(|text| parse_guid(&text));
    let uverbs = root
        .list("/sys/class/infiniband_verbs")
        .into_iter()
        .find(|node| {
            root.value(&format!("/sys/class/infiniband_verbs/{node}/ibdev"))
                .as_ref()
                == Some(&name)
        });
    let pci = || {
        Some(PciLink {
            current_speed: value("device/current_link_speed")?,
            current_width: value("device/current_link_width")?.parse().ok()?,
            max_speed: value("device/max_link_speed")?,
            max_width: value("device/max_link_width")?.parse().ok()?,
        })
    };
    let ports = root
        .list(&format!("/sys/class/infiniband/{name}/ports"))
        .iter()
        .filter_map(|port| port.parse().ok())
        .map(|port| read_port(root, &name, port))
        .collect();
    Device {
        node_type: value("node_type")
            .and_then(|text| NamedCode::parse(&text))
            .unwrap_or_default(),
        node_desc: value("node_desc"),
        node_guid: guid("node_guid"),
        sys_image_guid: guid("sys_image_guid"),
        hca_type: value("hca_type"),
        fw_ver: value("fw_ver"),
        hw_rev: value("hw_rev"),
        board_id: value("board_id"),
        driver: root.link(&format!("/sys/class/infiniband/{name}/device/driver")),
        numa_node: value("device/numa_node").and_then(|text| text.parse().ok()),
        pci: pci(),
        uverbs,
        ports,
        name,
    }
}

fn read_port(root: &Root, device: &str, port: u32) -> Port {
    let directory = format!("/sys/class/infiniband/{device}/ports/{port}");
    let value = |file: &str| printable_value(root, &format!("{directory}/{file}"));
    let named = |file: &str| {
        value(file)
            .and_then(|text| NamedCode::parse(&text))
            .unwrap_or_default()
    };
    let hex = |file: &str| {
        value(file)
            .and_then(|text| u32::try_from(unsigned(&text)?).ok())
            .unwrap_or(0)
    };
    // Old drivers, all for InfiniBand, do not have this file. libibumad uses the same fallback.
    let link_layer = value("link_layer").unwrap_or_else(|| "IB".to_owned());
    let mut gids = Vec::new();
    for index in root
        .list(&format!("{directory}/gids"))
        .iter()
        .filter_map(|index| index.parse().ok())
    {
        let gid = value(&format!("gids/{index}"))
            .and_then(|text| text.parse::<Ipv6Addr>().ok())
            .map(Gid::from);
        if let Some(gid) = gid.filter(|gid| !gid.is_zero()) {
            let kind = value(&format!("gid_attrs/types/{index}"));
            gids.push(GidRow {
                index,
                gid,
                kind,
                netdev: value(&format!("gid_attrs/ndevs/{index}")),
            });
        }
    }
    let pkeys = root
        .list(&format!("{directory}/pkeys"))
        .iter()
        .filter_map(|index| value(&format!("pkeys/{index}")))
        .filter_map(|text| u16::try_from(unsigned(&text)?).ok())
        .filter(|pkey| *pkey != 0)
        .collect();
    // The directory also contains an `issm` node for each port, for subnet managers.
    let umad = root
        .list(MAD)
        .into_iter()
        .filter(|node| node.starts_with("umad"))
        .find(|node| {
            root.value(&format!("{MAD}/{node}/ibdev")).as_deref() == Some(device)
                && root.number(&format!("{MAD}/{node}/port")) == Some(port)
        });
    let netdev = gids
        .iter()
        .find_map(|row: &GidRow| row.netdev.clone())
        .or_else(|| root.value(&format!("/sys/class/infiniband/{device}/parent")))
        .or_else(|| netdev_of_port(root, device, port))
        .filter(|_| link_layer == "Ethernet");
    Port {
        port,
        state: named("state"),
        phys_state: named("phys_state"),
        rate: value("rate").and_then(|text| Rate::parse(&text)),
        lid: hex("lid"),
        lmc: hex("lid_mask_count"),
        sm_lid: hex("sm_lid"),
        cap_mask: hex("cap_mask"),
        link_layer,
        gids,
        pkeys,
        umad,
        netdev,
        roce_mode: root.value(&format!(
            "/sys/kernel/config/rdma_cm/{device}/ports/{port}/default_roce_mode"
        )),
    }
}

/// Returns the Ethernet interface of a port, from the PCI device of the adapter.
fn netdev_of_port(root: &Root, device: &str, port: u32) -> Option<String> {
    let directory = format!("/sys/class/infiniband/{device}/device/net");
    root.list(&directory).into_iter().find(|name| {
        root.number::<u32>(&format!("{directory}/{name}/dev_port"))
            .unwrap_or(0)
            .checked_add(1)
            == Some(port)
            && root.number::<u32>(&format!("{directory}/{name}/type")) == Some(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guid_round_trips_through_text() {
        assert_eq!(
            parse_guid("f034:d4ff:fea2:9021\n").unwrap().to_string(),
            "f034:d4ff:fea2:9021"
        );
        for invalid in [
            "",
            "f034",
            "f034:d4ff:fea2:902g",
            "f034:d4ff:fea2:+021",
            "f034:d4ff:fea2:9021:0000",
        ] {
            assert_eq!(parse_guid(invalid), None, "{invalid}");
        }
    }
}
