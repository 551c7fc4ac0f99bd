//! Reads devices from the files in `/sys/class`.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use base::peer_text::printable;
use ibverbs::{Gid, Guid};

use super::types::{Device, GidRow, NamedCode, Port};
use crate::pci_link::PciLink;
use crate::rate::Rate;
use crate::root::{Directory, Root, is_name, unsigned};

const VERBS: &str = "/sys/class/infiniband_verbs";
const MAD: &str = "/sys/class/infiniband_mad";
/// Maximum number of ports and table entries. Links in a tree can make it look endless.
const MAX_ENTRIES: usize = 1 << 20;

/// The types of NVIDIA's virtual functions, which are their PCI IDs. A guest sees no other sign.
const VIRTUAL_FUNCTIONS: [&str; 9] = [
    "MT4100", "MT4114", "MT4116", "MT4118", "MT4120", "MT4122", "MT4124", "MT4126", "MT41683",
];

/// The root, and the nodes of all devices.
struct Reader<'a> {
    root: &'a Root,
    /// Read the tables of GIDs and P_Keys.
    with_tables: bool,
    /// The names of the verbs nodes, by device.
    uverbs: HashMap<String, String>,
    /// The names of the nodes for management datagrams, by device and port.
    umads: HashMap<(String, u32), String>,
    /// The number of entries that may still be read.
    remaining: usize,
}

/// Returns the devices, sorted by name. A name that cannot be part of a command is omitted.
pub fn all(root: &Root) -> Vec<Device> {
    read_all(root, true)
}

/// Returns the devices as [`all`] does, but without the GIDs and P_Keys of their ports, which are
/// in hundreds of files.
pub fn all_without_tables(root: &Root) -> Vec<Device> {
    read_all(root, false)
}

fn read_all(root: &Root, with_tables: bool) -> Vec<Device> {
    let ibdev = |class: &str, node: &str| root.value(&format!("{class}/{node}/ibdev"));
    let uverbs = root.list(VERBS).into_iter();
    // The directory also contains an `issm` node for each port, for subnet managers.
    let umads = root
        .list(MAD)
        .into_iter()
        .filter(|node| node.starts_with("umad"));
    let umad = |node: String| {
        let port = root.number(&format!("{MAD}/{node}/port"))?;
        Some(((ibdev(MAD, &node)?, port), node))
    };
    let mut reader = Reader {
        root,
        with_tables,
        uverbs: uverbs
            .filter_map(|node| Some((ibdev(VERBS, &node)?, node)))
            .collect(),
        umads: umads.filter_map(umad).collect(),
        remaining: MAX_ENTRIES,
    };
    let mut names = root.list("/sys/class/infiniband");
    names.retain(|name| is_name(name));
    names
        .into_iter()
        .map(|name| read(&mut reader, name))
        .collect()
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
fn printable_value(directory: &Directory<'_>, file: &str) -> Option<String> {
    directory.value(file).map(|value| printable(&value))
}

fn read(reader: &mut Reader<'_>, name: String) -> Device {
    let root = reader.root;
    let directory = root.directory(format!("/sys/class/infiniband/{name}"));
    let value = |file: &str| printable_value(&directory, file);
    let guid = |file: &str| value(file).and_then(|text| parse_guid(&text));
    let uverbs = reader.uverbs.get(&name).cloned();
    let pci = || {
        // A virtual function has speed `Unknown` and width 0.
        let width = value("device/current_link_width")?.parse().ok()?;
        let speed = value("device/current_link_speed")?;
        (width > 0 && !speed.starts_with("Unknown")).then_some(())?;
        Some(PciLink {
            current_speed: speed,
            current_width: width,
            max_speed: value("device/max_link_speed")?,
            max_width: value("device/max_link_width")?.parse().ok()?,
        })
    };
    let ports = root
        .list(&format!("/sys/class/infiniband/{name}/ports"))
        .iter()
        .filter_map(|port| port.parse().ok())
        .map_while(|port| read_port(reader, &name, port))
        .collect();
    let hca_type = value("hca_type");
    Device {
        node_type: value("node_type")
            .and_then(|text| NamedCode::parse(&text))
            .unwrap_or_default(),
        node_desc: value("node_desc"),
        node_guid: guid("node_guid"),
        sys_image_guid: guid("sys_image_guid"),
        fw_ver: value("fw_ver"),
        hw_rev: value("hw_rev"),
        board_id: value("board_id"),
        driver: root.link(&format!("/sys/class/infiniband/{name}/device/driver")),
        numa_node: value("device/numa_node").and_then(|text| text.parse().ok()),
        pci: pci(),
        is_virtual: root
            .link(&format!("/sys/class/infiniband/{name}/device/physfn"))
            .is_some()
            || hca_type
                .as_deref()
                .is_some_and(|kind| VIRTUAL_FUNCTIONS.contains(&kind)),
        hca_type,
        slot: slot(root, &name),
        is_onboard: value("device/label").is_some(),
        abi_version: uverbs
            .as_ref()
            .and_then(|node| root.number(&format!("{VERBS}/{node}/abi_version"))),
        uverbs,
        ports,
        name,
    }
}

/// Returns the PCI address of an adapter.
fn slot(root: &Root, device: &str) -> Option<String> {
    let text = root.text(&format!("/sys/class/infiniband/{device}/device/uevent"))?;
    let slot = text
        .lines()
        .find_map(|line| line.strip_prefix("PCI_SLOT_NAME="))?;
    Some(slot.trim().to_owned())
}

/// Reads a port. Returns `None` if no more entries may be read.
fn read_port(reader: &mut Reader<'_>, device: &str, port: u32) -> Option<Port> {
    let root = reader.root;
    reader.remaining = reader.remaining.checked_sub(1)?;
    let path = format!("/sys/class/infiniband/{device}/ports/{port}");
    let directory = root.directory(path.as_str());
    let value = |file: &str| printable_value(&directory, file);
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
    let indices = root.list(&format!("{path}/gids"));
    reader.remaining = reader.remaining.checked_sub(indices.len())?;
    let (gids, gid_netdev) = if reader.with_tables {
        let gids = read_gids(root, &path, &indices);
        let netdev = gids.iter().find_map(|row| row.netdev.clone());
        (gids, netdev)
    } else {
        let row = |index: &String| {
            parse_gid(&value(&format!("gids/{index}"))?)?;
            value(&format!("gid_attrs/ndevs/{index}"))
        };
        let is_ethernet = link_layer == "Ethernet";
        let netdev = is_ethernet.then(|| indices.iter().find_map(row));
        (Vec::new(), netdev.flatten())
    };
    let pkeys = if reader.with_tables {
        read_pkeys(reader, &path)?
    } else {
        Vec::new()
    };
    let umad = reader.umads.get(&(device.to_owned(), port)).cloned();
    let netdev = gid_netdev
        .or_else(|| root.value(&format!("/sys/class/infiniband/{device}/parent")))
        .or_else(|| netdev_of_port(root, device, port))
        .filter(|name| link_layer == "Ethernet" && is_name(name));
    Some(Port {
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
    })
}

/// Reads the rows of a port's GID table that are not empty.
fn read_gids(root: &Root, port: &str, indices: &[String]) -> Vec<GidRow> {
    let [gids, kinds, netdevs] = ["gids", "gid_attrs/types", "gid_attrs/ndevs"]
        .map(|table| root.directory(format!("{port}/{table}")));
    let row = |index: &String| {
        Some(GidRow {
            gid: parse_gid(&gids.value(index)?)?,
            index: index.parse().ok()?,
            kind: printable_value(&kinds, index),
            netdev: printable_value(&netdevs, index),
        })
    };
    indices.iter().filter_map(row).collect()
}

/// Parses a GID. Returns `None` for the zeros of an empty row.
fn parse_gid(text: &str) -> Option<Gid> {
    let gid = Gid::from(text.parse::<Ipv6Addr>().ok()?);
    (!gid.is_zero()).then_some(gid)
}

/// Reads the partition keys of a port. Returns `None` if no more entries may be read.
fn read_pkeys(reader: &mut Reader<'_>, directory: &str) -> Option<Vec<u16>> {
    let table = reader.root.directory(format!("{directory}/pkeys"));
    let indices = table.list();
    reader.remaining = reader.remaining.checked_sub(indices.len())?;
    let pkeys = indices
        .iter()
        .filter_map(|index| table.value(index))
        .filter_map(|text| u16::try_from(unsigned(&text)?).ok())
        .filter(|pkey| *pkey != 0);
    Some(pkeys.collect())
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
