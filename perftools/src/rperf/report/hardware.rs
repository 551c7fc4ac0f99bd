//! Description of the device of a connection, from sysfs.

use std::net::{IpAddr, SocketAddr};

use nix::ifaddrs::getifaddrs;

use crate::common::error::Error;
use crate::ribinfo::collect::rate::Rate;
use crate::ribinfo::collect::root::Root;
use crate::rperf::spec::connection::{ConnectionInfo, Hardware};

/// Returns the connection with a description of its device. For a test over sockets this is the
/// network interface that has the local address.
#[must_use]
pub fn describe(connection: ConnectionInfo) -> ConnectionInfo {
    let root = Root::host();
    if connection.port > 0 {
        let hardware = rdma_device(&root, &connection.device, connection.port);
        return ConnectionInfo {
            hardware,
            ..connection
        };
    }
    let address = connection.address.parse::<SocketAddr>();
    let Some(netdev) = address.ok().and_then(|address| interface_of(address.ip())) else {
        return connection;
    };
    ConnectionInfo {
        port_mtu: root.number(&format!("/sys/class/net/{netdev}/mtu")),
        hardware: interface(&root, netdev),
        ..connection
    }
}

/// Names the port of the connection in the error of a test, if the port is no longer active.
pub fn name_inactive_port(error: Error, connection: &ConnectionInfo) -> Error {
    let (device, port) = (&connection.device, connection.port);
    let state = format!("/sys/class/infiniband/{device}/ports/{port}/state");
    let Some(state) = Root::host().value(&state) else {
        return error;
    };
    // The text is a number and a name, such as `4: ACTIVE`.
    let state = state.rsplit(' ').next().unwrap_or_default();
    if state == "ACTIVE" {
        return error;
    }
    let netdev = connection.hardware.netdev.as_deref();
    error
        .context(format!("port {port} of {device} is {state}"))
        .with_help(match netdev {
            Some(netdev) => {
                format!("bring its interface up with `ip link set {netdev} up` and check the cable")
            }
            None => "check the cable and that a subnet manager is running".to_owned(),
        })
}

/// Describes a port of an RDMA device.
fn rdma_device(root: &Root, device: &str, port: u8) -> Hardware {
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

/// Describes a network interface.
fn interface(root: &Root, netdev: String) -> Hardware {
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
fn interface_of(ip: IpAddr) -> Option<String> {
    getifaddrs().ok()?.find_map(|interface| {
        let address = interface.address?;
        let found = match ip {
            IpAddr::V4(ip) => address.as_sockaddr_in().is_some_and(|a| a.ip() == ip),
            IpAddr::V6(ip) => address.as_sockaddr_in6().is_some_and(|a| a.ip() == ip),
        };
        found.then_some(interface.interface_name)
    })
}
