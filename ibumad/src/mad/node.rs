//! Attributes of nodes (IBA 14.2.5.2, 14.2.5.3).

use rdma_types::{Guid, c_value};

use super::bits::{field_value, record};
use super::datagram::AttrId;

c_value! {
    /// The type of a node.
    ///
    /// # Example
    /// ```no_run
    /// # fn f(smi: &ibumad::Smi) -> ibumad::Result<()> {
    /// use ibumad::{Lid, Target, mad::NodeType};
    /// let is_switch = smi.node_info(&Target::Lid(Lid(7)))?.node_type() == NodeType::SWITCH;
    /// # Ok(()) }
    /// ```
    pub struct NodeType(u8) {
        /// A channel adapter.
        CA = 1 => "Channel Adapter",
        /// A switch.
        SWITCH = 2 => "Switch",
        /// A router.
        ROUTER = 3 => "Router",
    }
}

field_value!(NodeType(u8));

record! {
    /// The properties of a node: the attribute NodeInfo.
    ///
    /// # Example
    /// ```no_run
    /// # fn f(smi: &ibumad::Smi) -> ibumad::Result<()> {
    /// let node = smi.node_info(&ibumad::Target::local())?;
    /// println!("{} {}, {} ports", node.node_type(), node.node_guid(), node.num_ports());
    /// # Ok(()) }
    /// ```
    pub struct NodeInfo: 40 bytes, attribute AttrId::NODE_INFO, {
        /// Supported version of the MAD header.
        base_version: u8 = 0 + 8,
        /// Supported version of the subnet management class.
        class_version: u8 = 8 + 8,
        /// Type of the node.
        node_type: NodeType = 16 + 8,
        /// Number of ports.
        num_ports: u8 = 24 + 8,
        /// GUID of the system that contains the node.
        system_guid: Guid = 32 + 64,
        /// GUID of the node.
        node_guid: Guid = 96 + 64,
        /// GUID of the port that received the request.
        port_guid: Guid = 160 + 64,
        /// Number of entries of each port's table of partition keys.
        partition_cap: u16 = 224 + 16,
        /// Device identifier, assigned by the vendor.
        device_id: u16 = 240 + 16,
        /// Revision of the device, assigned by the vendor.
        revision: u32 = 256 + 32,
        /// Number of the port that received the request.
        local_port: u8 = 288 + 8,
        /// Vendor (an OUI).
        vendor_id: u32 = 296 + 24,
    }
}

record! {
    /// The name of a node: the attribute NodeDescription.
    ///
    /// # Example
    /// ```
    /// use ibumad::mad::NodeDescription;
    /// let mut bytes = [0; NodeDescription::LEN];
    /// bytes[..4].copy_from_slice(b"host");
    /// let description = NodeDescription::from_bytes(&bytes).expect("64 bytes");
    /// assert_eq!(description.text(), "host");
    /// ```
    pub struct NodeDescription: 64 bytes, attribute AttrId::NODE_DESCRIPTION, {}
}

impl NodeDescription {
    /// Returns the name, up to the first NUL. Bytes that are not UTF-8 and control characters are
    /// replaced by U+FFFD.
    pub fn text(&self) -> String {
        super::vendor::printable_text(self.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_with_its_field() {
        let name = NodeDescription::from_bytes(&[b'a'; 64]).expect("64 bytes");
        assert_eq!(name.text(), "a".repeat(64));
        assert_eq!(NodeDescription::default().text(), "");
    }
}
