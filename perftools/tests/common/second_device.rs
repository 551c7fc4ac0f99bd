//! A further RDMA device for the duration of a test.

use std::process::{Child, Stdio};

use test_support::lab;
use test_support::process::{command, run_line};

/// A software device on a network interface of its own. It is removed on drop.
pub(crate) struct SecondDevice {
    pub(crate) name: String,
    pub(crate) netdev: String,
    pub(crate) ip: String,
}

impl SecondDevice {
    /// Creates a device of the same kind as `device`.
    pub(crate) fn new(device: &str, number: usize) -> Self {
        let kind = if lab::is_iwarp(device) { "siw" } else { "rxe" };
        let second = Self {
            name: format!("{kind}{}", 5 + number),
            netdev: format!("second{number}"),
            ip: format!("10.97.{}.1", 20 + number),
        };
        let Self { name, netdev, ip } = &second;
        for line in [
            format!("ip link add {netdev} type veth peer name {netdev}b"),
            format!("ip address add {ip}/24 dev {netdev}"),
            format!("ip link set {netdev} up"),
            format!("ip link set {netdev}b up"),
            format!("rdma link add {name} type {kind} netdev {netdev}"),
        ] {
            run_line(&line);
        }
        second
    }

    /// Starts the removal of the device.
    pub(crate) fn delete(&self) -> Child {
        command(&format!("rdma link delete {}", self.name))
            .stdin(Stdio::null())
            .spawn()
            .expect("rdma of iproute2")
    }
}

impl Drop for SecondDevice {
    fn drop(&mut self) {
        run_line(&format!("ip link delete {}", self.netdev));
    }
}
