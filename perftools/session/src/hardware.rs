//! Description of the device of a connection, from sysfs.

use std::net::SocketAddr;

use base::error::Error;
use host::hardware;
use host::root::Root;
use measure::spec::connection::ConnectionInfo;

/// Returns the connection with a description of its device. For a test over sockets this is the
/// network interface that has the local address.
#[must_use]
pub(crate) fn describe(connection: ConnectionInfo) -> ConnectionInfo {
    let root = Root::host();
    if connection.port > 0 {
        let hardware = hardware::rdma_device(&root, &connection.device, connection.port);
        return ConnectionInfo {
            hardware,
            ..connection
        };
    }
    let address = connection.address.parse::<SocketAddr>();
    let Some(netdev) = address
        .ok()
        .and_then(|address| hardware::interface_of(address.ip()))
    else {
        return connection;
    };
    ConnectionInfo {
        port_mtu: hardware::interface_mtu(&root, &netdev),
        hardware: hardware::interface(&root, netdev),
        ..connection
    }
}

/// Names the port of the connection in the error of a test, if the port is no longer active.
pub(crate) fn name_inactive_port(error: Error, connection: &ConnectionInfo) -> Error {
    let (device, port) = (&connection.device, &connection.port);
    let Some(state) = hardware::port_state(&Root::host(), device, *port) else {
        return error;
    };
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
