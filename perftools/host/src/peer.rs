//! The facts that a host sends to another host for `ribinfo check --peer`.

use std::net::IpAddr;

use base::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::roce::{V1, V2};
use super::root::{Root, is_name};
use super::verbs::VerbsPort;
use super::{device, roce};

/// The facts of a host that another host can request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerFacts {
    /// The host name.
    pub host: String,
    /// The ports.
    pub ports: Vec<PeerPort>,
}

/// A port of the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerPort {
    /// The name of the device.
    pub device: String,
    /// The port number, from 1.
    pub port: u32,
    /// The port is an iWARP port.
    pub iwarp: bool,
    /// The link layer: `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// The port is ACTIVE.
    pub active: bool,
    /// The RoCE version that rdma_cm uses on a RoCE port.
    pub roce_mode: Option<String>,
    /// The GID types in the GID table.
    pub kinds: Vec<String>,
    /// The IP addresses in its GID table.
    pub addresses: Vec<IpAddr>,
    /// The subnet prefix of an InfiniBand port.
    pub subnet_prefix: Option<u64>,
    /// The active MTU, in bytes.
    pub mtu: Option<u32>,
    /// The network interface of the port.
    #[serde(default)]
    pub netdev: Option<String>,
}

impl PeerPort {
    /// Returns `true` if the port is a RoCE port.
    pub fn is_roce(&self) -> bool {
        self.link_layer == "Ethernet" && !self.iwarp
    }

    /// Returns the technology. Two ports can communicate only if they have the same technology.
    pub fn technology(&self) -> &'static str {
        technology(&self.link_layer, self.iwarp)
    }
}

/// Returns the technology of a port: `InfiniBand`, `RoCE`, `iWARP` or `EFA`, whose link layer is
/// unknown.
pub fn technology(link_layer: &str, iwarp: bool) -> &'static str {
    match (link_layer, iwarp) {
        ("Ethernet", true) => "iWARP",
        ("Ethernet", false) => "RoCE",
        ("Unknown", _) => "EFA",
        _ => "InfiniBand",
    }
}

impl PeerFacts {
    /// Collects the facts of this host.
    pub fn collect(root: &Root) -> Self {
        let verbs = root.probe().verbs;
        let mut ports = Vec::new();
        for device in device::all(root) {
            for port in &device.ports {
                let roce = roce::is_roce(&device, port);
                let mut kinds: Vec<String> = port
                    .gids
                    .iter()
                    .filter_map(|row| row.kind.clone())
                    .collect();
                kinds.sort();
                kinds.dedup();
                ports.push(PeerPort {
                    device: device.name.clone(),
                    port: port.port,
                    iwarp: device.is_iwarp(),
                    link_layer: port.link_layer.clone(),
                    active: port.is_active(),
                    roce_mode: roce.then(|| roce::rdma_cm_mode(port).to_owned()),
                    kinds,
                    addresses: if roce {
                        port.gids.iter().filter_map(|row| row.gid.to_ip()).collect()
                    } else {
                        Vec::new()
                    },
                    subnet_prefix: port.subnet_prefix().filter(|_| port.is_infiniband()),
                    mtu: verbs
                        .device(&device.name)
                        .and_then(|d| d.port(port.port))
                        .and_then(VerbsPort::active_mtu_bytes),
                    netdev: port.netdev.clone(),
                });
            }
        }
        // The kernel writes "(none)" if no host name is set.
        let host = root
            .value("/proc/sys/kernel/hostname")
            .filter(|host| is_name(host));
        let host = host.unwrap_or_else(|| "peer".to_owned());
        Self { host, ports }
    }

    /// Returns the facts if every name in them is a valid name. The names are printed and are part
    /// of the commands in remedies.
    pub fn validated(self) -> Result<Self> {
        let is_kind = |text: &str| matches!(text, V1 | V2);
        let is_valid = |port: &PeerPort| {
            is_name(&port.device)
                && matches!(
                    port.link_layer.as_str(),
                    "InfiniBand" | "IB" | "Ethernet" | "Unknown"
                )
                && port.roce_mode.as_deref().is_none_or(is_kind)
                && port.netdev.as_deref().is_none_or(is_name)
        };
        if is_name(&self.host) && self.ports.iter().all(is_valid) {
            return Ok(self);
        }
        Err(Error::protocol(
            "the facts of the peer contain an invalid name",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_peer_cannot_contain_commands() {
        let port = |device: &str| PeerPort {
            device: device.into(),
            port: 1,
            iwarp: false,
            link_layer: "Ethernet".into(),
            active: true,
            roce_mode: Some(V1.into()),
            kinds: Vec::new(),
            addresses: Vec::new(),
            subnet_prefix: None,
            mtu: None,
            netdev: None,
        };
        let facts = |host: &str, device: &str| PeerFacts {
            host: host.into(),
            ports: vec![port(device)],
        };
        assert!(facts("node-1.lab", "mlx5_0").validated().is_ok());
        for (host, device) in [
            ("a\x1b[2J", "rxe0"),
            ("a", "rxe0; reboot"),
            ("a", "$(reboot)"),
            ("", "rxe0"),
            ("a", "a/b"),
        ] {
            assert!(facts(host, device).validated().is_err(), "{host} {device}");
        }
    }
}
