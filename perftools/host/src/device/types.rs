//! Types for devices, their ports and their GID tables.

use std::fmt;

use ibverbs::{Gid, Guid};
use serde::{Serialize, Serializer};

use crate::pci_link::PciLink;
use crate::rate::Rate;
use crate::root::number;

/// Writes a GUID as a string such as `0002:c903:0031:78f2`.
#[allow(clippy::ref_option, reason = "serde passes this type")]
fn guid_text<S: Serializer>(guid: &Option<Guid>, serializer: S) -> Result<S::Ok, S::Error> {
    match guid {
        Some(guid) => serializer.collect_str(guid),
        None => serializer.serialize_none(),
    }
}

fn gid_text<S: Serializer>(gid: &Gid, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(gid)
}

/// A code with a name in the notation of sysfs, for example `4: ACTIVE`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamedCode {
    /// The code.
    pub code: u32,
    /// The name after the code.
    pub name: String,
}

impl NamedCode {
    /// Parses a text such as `4: ACTIVE`.
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
    /// The link is up, but no subnet manager has configured the port.
    pub const INIT: u32 = 2;
    /// The subnet manager is configuring the port.
    pub const ARMED: u32 = 3;
    /// The port is ready.
    pub const ACTIVE: u32 = 4;
}

/// Node type of an iWARP adapter in sysfs.
const IWARP_ADAPTER: u32 = 4;
/// Node types of usNIC in sysfs.
const USNIC: [u32; 2] = [5, 6];

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// The name, for example `mlx5_0`.
    pub name: String,
    /// The node type: `1: CA` or `4: RNIC`.
    pub node_type: NamedCode,
    /// The node description.
    pub node_desc: Option<String>,
    /// The node GUID.
    #[serde(serialize_with = "guid_text")]
    pub node_guid: Option<Guid>,
    /// The system image GUID.
    #[serde(serialize_with = "guid_text")]
    pub sys_image_guid: Option<Guid>,
    /// The model, for example `MT4099`.
    pub hca_type: Option<String>,
    /// The firmware version.
    pub fw_ver: Option<String>,
    /// The hardware revision.
    pub hw_rev: Option<String>,
    /// The board ID.
    pub board_id: Option<String>,
    /// The name of the driver. `None` for a software device.
    pub driver: Option<String>,
    /// The NUMA node of the PCIe slot.
    pub numa_node: Option<i32>,
    /// The PCIe link. `None` for a virtual function, which has none of its own.
    pub pci: Option<PciLink>,
    /// The PCI address, for example `0000:5e:00.0`.
    #[serde(skip)]
    pub slot: Option<String>,
    /// The device is a virtual function of an adapter.
    #[serde(skip)]
    pub is_virtual: bool,
    /// The adapter is part of the main board (SMBIOS type 41).
    #[serde(skip)]
    pub is_onboard: bool,
    /// The version of the driver's interface for its provider library.
    #[serde(skip)]
    pub abi_version: Option<u32>,
    /// The name of the verbs node in `/dev/infiniband`.
    pub uverbs: Option<String>,
    /// The ports.
    pub ports: Vec<Port>,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// The port number, from 1.
    pub port: u32,
    /// The state, for example `4: ACTIVE`.
    pub state: NamedCode,
    /// The physical state, for example `5: LinkUp`.
    pub phys_state: NamedCode,
    /// The rate, for example `100 Gb/sec (4X EDR)`.
    pub rate: Option<Rate>,
    /// The LID, 0 on Ethernet.
    pub lid: u32,
    /// The LID mask control.
    pub lmc: u32,
    /// The LID of the subnet manager.
    pub sm_lid: u32,
    /// The capability mask.
    pub cap_mask: u32,
    /// The link layer: `InfiniBand` or `Ethernet`, or `IB` if the driver does not report it.
    pub link_layer: String,
    /// The entries of the GID table that are in use, if the tables were read.
    pub gids: Vec<GidRow>,
    /// The partition keys, if the tables were read.
    pub pkeys: Vec<u16>,
    /// The name of the node for management datagrams in `/dev/infiniband`.
    pub umad: Option<String>,
    /// The network interface of an Ethernet port.
    pub netdev: Option<String>,
    /// The RoCE version configured for rdma_cm, for example `RoCE v2`. `None` if configfs has no
    /// entry for the port.
    pub roce_mode: Option<String>,
}

/// An entry of the GID table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GidRow {
    /// The index.
    pub index: u32,
    /// The GID.
    #[serde(serialize_with = "gid_text")]
    pub gid: Gid,
    /// The type: `RoCE v2` or `IB/RoCE v1`.
    pub kind: Option<String>,
    /// The network interface whose address the GID represents.
    pub netdev: Option<String>,
}

impl Device {
    /// Returns `true` if the device is implemented in software.
    pub fn is_software(&self) -> bool {
        self.driver.is_none() && self.pci.is_none() && self.slot.is_none()
    }

    /// Returns `true` if the device belongs to Omni-Path, whose fabric manager is not OpenSM.
    pub fn is_omni_path(&self) -> bool {
        self.driver.as_deref() == Some("hfi1")
    }

    /// Returns `true` if the devices are functions of one adapter.
    pub fn is_same_adapter(&self, other: &Self) -> bool {
        // Functions of a PCI device differ only after the dot.
        let slot = |device: &Self| Some(device.slot.as_ref()?.rsplit_once('.')?.0.to_owned());
        let is_same = |a: Option<String>, b: Option<String>| a.is_some() && a == b;
        // Without the address: udev's names of interfaces contain it, as in `enp194s0f1np1`.
        let named_slot = |device: &Self| {
            let netdev = device.ports.first()?.netdev.as_ref()?;
            let (slot, function) = netdev.rsplit_once('f')?;
            let is_slot =
                netdev.starts_with("en") && function.starts_with(|c: char| c.is_ascii_digit());
            is_slot.then(|| slot.to_owned())
        };
        self.name == other.name
            || (self.sys_image_guid.is_some() && self.sys_image_guid == other.sys_image_guid)
            || is_same(slot(self), slot(other))
            || (self.slot.is_none() && is_same(named_slot(self), named_slot(other)))
    }

    /// Returns `true` if the adapter cannot be moved: it is on the main board or in the chip set,
    /// or it is virtual. X722 and hns are parts of chips, and the others exist in clouds only.
    pub fn is_fixed(&self) -> bool {
        const DRIVERS: [&str; 7] = ["i40e", "hns3", "efa", "erdma", "mana", "gdma", "vmw_pvrdma"];
        let driver = self.driver.as_deref().unwrap_or_default();
        self.is_onboard || self.is_virtual || DRIVERS.contains(&driver)
    }

    /// Returns `true` if the device is a subfunction of an adapter, a device of the auxiliary bus.
    pub fn is_subfunction(&self) -> bool {
        let driver = self.driver.as_deref();
        driver.is_some_and(|driver| driver == "mlx5_core.sf")
    }

    /// Returns `true` if the device is a usNIC of Cisco. It sends UDP packets from verbs, and has
    /// neither RoCE nor rdma_cm.
    pub fn is_usnic(&self) -> bool {
        USNIC.contains(&self.node_type.code)
    }

    /// Returns `true` if the device is an iWARP device.
    pub fn is_iwarp(&self) -> bool {
        self.node_type.code == IWARP_ADAPTER
    }
}

impl Port {
    /// Returns `true` if the port is a RoCE or iWARP port.
    pub fn is_ethernet(&self) -> bool {
        self.link_layer == "Ethernet"
    }

    /// Returns `true` if the port is an InfiniBand or Omni-Path port. Other ports, such as those of
    /// EFA, have no subnet manager.
    pub fn is_infiniband(&self) -> bool {
        matches!(self.link_layer.as_str(), "InfiniBand" | "IB")
    }

    /// Returns `true` if the port is ACTIVE.
    pub fn is_active(&self) -> bool {
        self.state.code == state::ACTIVE
    }

    /// Returns the port GUID. Like libibumad, it takes the lower half of the first GID.
    pub fn guid(&self) -> Option<Guid> {
        let gid = self.gids.iter().find(|row| row.index == 0)?.gid;
        Some(Guid(
            u64::try_from(gid.as_ipv6().to_bits() & u128::from(u64::MAX)).ok()?,
        ))
    }

    /// Returns the subnet prefix, the upper half of the first GID.
    pub fn subnet_prefix(&self) -> Option<u64> {
        let gid = self.gids.iter().find(|row| row.index == 0)?.gid;
        u64::try_from(gid.as_ipv6().to_bits() >> 64).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_name_are_parsed() {
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
