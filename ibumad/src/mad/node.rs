//! What a node is and how it is called (IBA 14.2.5.2, 14.2.5.3).

use super::bits::{field_value, record};
use super::datagram::AttrId;
use crate::identity::Guid;
use crate::newtype::c_value;

c_value! {
    /// What a node is.
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
    /// What a node is: the attribute NodeInfo.
    pub struct NodeInfo: 40 bytes, attribute AttrId::NODE_INFO, {
        /// Version of management datagrams.
        base_version: u8 = 0 + 8,
        /// Version of subnet management.
        class_version: u8 = 8 + 8,
        /// Channel adapter, switch or router.
        node_type: NodeType = 16 + 8,
        /// Ports that it has.
        num_ports: u8 = 24 + 8,
        /// GUID of the system that it is a part of.
        system_guid: Guid = 32 + 64,
        /// Its own GUID.
        node_guid: Guid = 96 + 64,
        /// GUID of the port that was asked.
        port_guid: Guid = 160 + 64,
        /// Places of the table of partition keys.
        partition_cap: u16 = 224 + 16,
        /// The maker's number of the device.
        device_id: u16 = 240 + 16,
        /// The maker's number of the revision.
        revision: u32 = 256 + 32,
        /// The port that was asked.
        local_port: u8 = 288 + 8,
        /// The maker (an OUI).
        vendor_id: u32 = 296 + 24,
    }
}

record! {
    /// A node's name: the attribute NodeDescription.
    pub struct NodeDescription: 64 bytes, attribute AttrId::NODE_DESCRIPTION, {}
}

impl NodeDescription {
    /// The name, up to the first NUL; bytes that are no UTF-8 or not printable are replaced.
    pub fn text(&self) -> String {
        let bytes = self
            .as_bytes()
            .split(|&byte| byte == 0)
            .next()
            .unwrap_or_default();
        String::from_utf8_lossy(bytes).replace(char::is_control, "\u{fffd}")
    }
}
