//! What a device, its ports and their GID tables are.

use std::fmt;

use ibverbs::{Gid, Guid};
use serde::{Serialize, Serializer};

use crate::ribinfo::collect::rate::Rate;
use crate::ribinfo::collect::root::number;

/// A GUID as the tools write it in JSON: `0002:c903:0031:78f2`.
#[allow(clippy::ref_option, reason = "what serde calls")]
fn guid_text<S: Serializer>(guid: &Option<Guid>, serializer: S) -> Result<S::Ok, S::Error> {
    match guid {
        Some(guid) => serializer.collect_str(guid),
        None => serializer.serialize_none(),
    }
}

fn gid_text<S: Serializer>(gid: &Gid, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(gid)
}

/// A number with a name, as sysfs writes them: `4: ACTIVE`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamedCode {
    /// The number.
    pub code: u32,
    /// The name behind it.
    pub name: String,
}

impl NamedCode {
    /// Reads `4: ACTIVE`.
    pub fn parse(text: &str) -> Option<Self> {
        let (code, name) = text.split_once(':').unwrap_or((text, ""));
        Some(Self {
            code: u32::try_from(number(code)?).ok()?,
            name: name.trim().to_owned(),
        })
    }
}

impl fmt::Display for NamedCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Port states (IBA PortInfo:PortState).
pub mod state {
    /// The link is not up.
    pub const DOWN: u32 = 1;
    /// The link is up and waits for a subnet manager.
    pub const INIT: u32 = 2;
    /// The subnet manager is at it.
    pub const ARMED: u32 = 3;
    /// Ready.
    pub const ACTIVE: u32 = 4;
}

/// Node types of sysfs.
pub mod node_type {
    /// Channel adapter.
    pub const CA: u32 = 1;
    /// iWARP.
    pub const RNIC: u32 = 4;
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Its name: `mlx5_0`.
    pub name: String,
    /// `1: CA`, `4: RNIC`.
    pub node_type: NamedCode,
    /// What it calls itself.
    pub node_desc: Option<String>,
    /// The GUID of the node.
    #[serde(serialize_with = "guid_text")]
    pub node_guid: Option<Guid>,
    /// The GUID of the system that it is part of.
    #[serde(serialize_with = "guid_text")]
    pub sys_image_guid: Option<Guid>,
    /// The model: `MT4099`.
    pub hca_type: Option<String>,
    /// The firmware.
    pub fw_ver: Option<String>,
    /// The revision of the hardware.
    pub hw_rev: Option<String>,
    /// The board.
    pub board_id: Option<String>,
    /// The driver's module; none for software devices.
    pub driver: Option<String>,
    /// The NUMA node of its slot.
    pub numa_node: Option<i32>,
    /// The slot's link.
    pub pci: Option<PciLink>,
    /// The node in `/dev/infiniband` for verbs.
    pub uverbs: Option<String>,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// The PCI Express link of a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PciLink {
    /// `8.0 GT/s PCIe`.
    pub current_speed: String,
    /// Lanes in use.
    pub current_width: u32,
    /// What the card can do.
    pub max_speed: String,
    /// The lanes that it has.
    pub max_width: u32,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// From 1.
    pub port: u32,
    /// `4: ACTIVE`.
    pub state: NamedCode,
    /// `5: LinkUp`.
    pub phys_state: NamedCode,
    /// `100 Gb/sec (4X EDR)`.
    pub rate: Option<Rate>,
    /// Local identifier; 0 on Ethernet.
    pub lid: u32,
    /// Mask control.
    pub lmc: u32,
    /// Where the subnet manager is.
    pub sm_lid: u32,
    /// Capabilities.
    pub cap_mask: u32,
    /// `InfiniBand` or `Ethernet`; `IB` where the driver does not say.
    pub link_layer: String,
    /// The places of the GID table that are taken.
    pub gids: Vec<GidRow>,
    /// The partition keys that are set.
    pub pkeys: Vec<u16>,
    /// The node in `/dev/infiniband` for management datagrams.
    pub umad: Option<String>,
    /// The interface behind an Ethernet port.
    pub netdev: Option<String>,
    /// What rdma_cm prefers, where it was looked at or set: `RoCE v2`.
    pub roce_mode: Option<String>,
}

/// A place of the GID table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GidRow {
    /// Its number.
    pub index: u32,
    /// The GID.
    #[serde(serialize_with = "gid_text")]
    pub gid: Gid,
    /// `RoCE v2`, `IB/RoCE v1`.
    pub kind: Option<String>,
    /// The interface whose address it stands for.
    pub netdev: Option<String>,
}

impl Device {
    /// Whether no card is behind it.
    pub fn is_software(&self) -> bool {
        self.driver.is_none() && self.pci.is_none()
    }

    /// Whether it speaks iWARP.
    pub fn is_iwarp(&self) -> bool {
        self.node_type.code == node_type::RNIC
    }
}

impl Port {
    /// Whether it is a RoCE or iWARP port.
    pub fn is_ethernet(&self) -> bool {
        self.link_layer == "Ethernet"
    }

    /// Whether it is ready.
    pub fn is_active(&self) -> bool {
        self.state.code == state::ACTIVE
    }

    /// The port GUID: the lower half of the first GID, as libibumad takes it.
    pub fn guid(&self) -> Option<Guid> {
        let gid = self.gids.iter().find(|row| row.index == 0)?.gid;
        Some(Guid(
            u64::try_from(gid.as_ipv6().to_bits() & u128::from(u64::MAX)).ok()?,
        ))
    }

    /// The subnet prefix: the upper half of the first GID.
    pub fn subnet_prefix(&self) -> Option<u64> {
        let gid = self.gids.iter().find(|row| row.index == 0)?.gid;
        u64::try_from(gid.as_ipv6().to_bits() >> 64).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_numbers_are_split() {
        assert_eq!(
            NamedCode::parse("4: ACTIVE"),
            Some(NamedCode {
                code: 4,
                name: "ACTIVE".into()
            })
        );
        assert_eq!(NamedCode::parse("7").map(|n| n.code), Some(7));
        assert_eq!(NamedCode::parse(": x"), None);
    }
}
