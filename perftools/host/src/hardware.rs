//! Description of RDMA devices and network interfaces, from sysfs.

use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use serde::{Deserialize, Serialize};

use super::rate::Rate;
use super::root::Root;

/// Description of an RDMA device or a network interface by the system. Unknown values are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Hardware {
    /// Name of the driver in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Version of the firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Network interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netdev: Option<String>,
    /// Rate of the link in bits per second. Absent for a software device, because the rate that it
    /// reports has no meaning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_rate: Option<u64>,
}

impl Hardware {
    /// Returns `true` if nothing is known.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the description of a port of an RDMA device.
pub fn rdma_device(root: &Root, device: &str, port: u8) -> Hardware {
    let directory = format!("/sys/class/infiniband/{device}");
    // A software device has no directory `device`, and its rate has no meaning.
    let has_hardware = root.exists(&format!("{directory}/device"));
    let link_rate = has_hardware
        .then(|| root.text(&format!("{directory}/ports/{port}/rate")))
        .flatten()
        .and_then(|rate| Rate::parse(&rate))
        .map(|rate| u64::from(rate.mbps) * 1_000_000);
    Hardware {
        driver: driver(root, &directory),
        firmware: root.value(&format!("{directory}/fw_ver")),
        netdev: root.value(&format!("{directory}/ports/{port}/gid_attrs/ndevs/0")),
        link_rate,
    }
}

/// Returns the description of a network interface.
pub fn interface(root: &Root, netdev: String) -> Hardware {
    let directory = format!("/sys/class/net/{netdev}");
    // The speed is -1 if it is unknown, and cannot be read for some virtual interfaces.
    let link_rate = root
        .value(&format!("{directory}/speed"))
        .and_then(|speed| speed.parse::<u64>().ok())
        .map(|mbps| mbps * 1_000_000);
    Hardware {
        driver: driver(root, &directory),
        firmware: None,
        link_rate,
        netdev: Some(netdev),
    }
}

fn driver(root: &Root, directory: &str) -> Option<String> {
    let link = root.link(&format!("{directory}/device/driver"))?;
    link.rsplit('/').next().map(str::to_owned)
}

/// Returns the name of the interface that has this address.
pub fn interface_of(ip: IpAddr) -> Option<String> {
    getifaddrs().ok()?.find_map(|interface| {
        let address = interface.address?;
        let found = match ip {
            IpAddr::V4(ip) => address.as_sockaddr_in().is_some_and(|a| a.ip() == ip),
            IpAddr::V6(ip) => address.as_sockaddr_in6().is_some_and(|a| a.ip() == ip),
        };
        found.then_some(interface.interface_name)
    })
}

/// Returns the name of a port's state, such as `ACTIVE`.
pub fn port_state(root: &Root, device: &str, port: u8) -> Option<String> {
    let state = root.value(&format!(
        "/sys/class/infiniband/{device}/ports/{port}/state"
    ))?;
    // The text is a number and a name, such as `4: ACTIVE`.
    state.rsplit(' ').next().map(str::to_owned)
}

/// Returns the MTU of a network interface in bytes.
pub fn interface_mtu(root: &Root, netdev: &str) -> Option<u32> {
    root.number(&format!("/sys/class/net/{netdev}/mtu"))
}
