//! Restores network interfaces.

use std::fs;
use std::time::Duration;

use test_support::lab::netdev;
use test_support::process;

use super::program::check;

/// Restores a network interface when it is dropped: up, with its MTU and its addresses.
pub(crate) struct Restore {
    pub(crate) netdev: String,
    device: String,
    mtu: String,
    /// Addresses with their prefix lengths.
    pub(crate) addresses: Vec<String>,
}

impl Restore {
    pub(crate) fn new(device: &str) -> Self {
        let netdev = netdev(device);
        let text = process::run_line(&format!("ip -o addr show dev {netdev} scope global"));
        let addresses = text
            .lines()
            .filter_map(|line| line.split_whitespace().nth(3))
            .map(str::to_owned)
            .collect();
        let mtu = fs::read_to_string(format!("/sys/class/net/{netdev}/mtu")).expect("MTU");
        Self {
            netdev,
            device: device.to_owned(),
            mtu: mtu.trim().to_owned(),
            addresses,
        }
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        let ip = |arguments: String| {
            let _ = process::output(&mut process::command(&format!("ip {arguments}")));
        };
        let netdev = &self.netdev;
        ip(format!("link set {netdev} mtu {}", self.mtu));
        ip(format!("link set {netdev} up"));
        for address in &self.addresses {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            ip(format!("addr replace {address} dev {netdev}{nodad}"));
        }
        let state = format!("/sys/class/infiniband/{}/ports/1/state", self.device);
        process::wait_until(Duration::from_secs(10), || {
            fs::read_to_string(&state).is_ok_and(|text| text.contains("ACTIVE"))
                && check(&["gid", "port"]).1 == 0
        });
    }
}
