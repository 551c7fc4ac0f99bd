//! Modes of a device or an interface: virtual functions, switchdev, another network namespace. Each
//! rule names the function of the kernel that it follows.

use std::fs;

use serde_json::json;

use super::host_builder::{CLASS, Host};

impl Host {
    /// Removes the GIDs that the addresses of an interface gave.
    pub(super) fn no_gids_of_addresses(&self, netdev: &str) {
        for device in fs::read_dir(self.path().join(CLASS))
            .expect("devices")
            .flatten()
        {
            let port = device.path().join("ports/1");
            for index in ["1", "2", "3"] {
                let read = |table: &str| fs::read_to_string(port.join(table).join(index));
                let is_local = read("gids").is_ok_and(|gid| gid.starts_with("fe80"));
                if !is_local && read("gid_attrs/ndevs").is_ok_and(|text| text.trim() == netdev) {
                    for table in ["gids", "gid_attrs/types", "gid_attrs/ndevs"] {
                        fs::remove_file(port.join(table).join(index)).expect("an entry");
                    }
                }
            }
        }
    }

    /// Adds an interface on top of that of a RoCE device, which has its addresses in the GID table
    /// (`is_eth_port_of_netdev_filter`).
    pub(super) fn stack(&mut self, name: &str, lower: &str, mtu: &str, ip: &str) {
        let hardware = self.read(&format!("sys/class/net/{lower}/address"));
        self.netdev(name, "1", hardware.trim(), &[mtu, ip]);
        self.link(&format!("sys/class/net/{name}/lower_{lower}"), lower);
        let ip = ip.split('/').next().expect("an address");
        let gid: std::net::Ipv6Addr = format!("::ffff:{ip}").parse().expect("an address");
        for device in fs::read_dir(self.path().join(CLASS))
            .expect("devices")
            .flatten()
        {
            let device = device.file_name().into_string().expect("a name");
            let port = format!("{CLASS}/{device}/ports/1");
            let ndevs = self.path().join(format!("{port}/gid_attrs/ndevs"));
            let mut ndevs = fs::read_dir(ndevs).into_iter().flatten().flatten();
            let is_on = ndevs.any(|file| fs::read_to_string(file.path()).is_ok_and(|n| n == lower));
            if is_on {
                let own = self.read(&format!("{port}/gids/0"));
                self.gid(&device, 1, "7", &own, "RoCE v2", name);
                self.gid(&device, 1, "8", &gid.to_string(), "RoCE v2", name);
            }
        }
    }

    /// Sets the limit of locked memory.
    pub(super) fn memlock(&mut self, bytes: u64) {
        self.write(
            "proc/self/limits",
            &format!("Max locked memory {bytes} {bytes} bytes\n"),
        );
        let result = if bytes < 16 << 20 {
            json!({"Err": "cannot register 16777216 bytes (ENOMEM)"})
        } else {
            json!({"Ok": null})
        };
        for registration in self.list("/registrations") {
            registration["result"] = result.clone();
        }
    }

    /// Makes the device a virtual function. It has no SMI, so that SMInfo and PortInfo cannot be
    /// queried (`mlx5_ib_port_immutable`), and its link of PCIe has no width.
    pub(super) fn make_virtual(&mut self, device: &str) {
        let path = format!("{CLASS}/{device}/device");
        self.link(&format!("{path}/physfn"), "0000:10:00.0");
        for kind in ["current", "max"] {
            self.write(
                &format!("{CLASS}/{device}/device/{kind}_link_speed"),
                "Unknown",
            );
            self.write(&format!("{CLASS}/{device}/device/{kind}_link_width"), "0");
        }
        let is_infiniband = self.list("/sms").iter().any(|sm| sm["device"] == device);
        if is_infiniband {
            let error = "query the subnet manager: umad_register2: class SubnMgt (LID routed): Protocol not supported (errno 93)";
            self.subnet_manager(device, "error", &[error]);
        }
    }

    /// Sets the eswitch of an adapter to switchdev. Its device has a port for each representor, all
    /// of them for raw packets only: without GIDs, P_Keys and nodes (`mlx5_port_rep_immutable`).
    pub(super) fn make_switchdev(&mut self, device: &str, netdev: &str, representors: usize) {
        self.write(
            &format!("sys/class/net/{netdev}/phys_switch_id"),
            "30b9d1fe000000",
        );
        self.list("/addresses")
            .retain(|address| address["netdev"] != netdev);
        let ports = format!("{CLASS}/{device}/ports");
        for table in ["gids", "gid_attrs", "pkeys"] {
            let _ = fs::remove_dir_all(self.path().join(format!("{ports}/1/{table}")));
        }
        for port in 2..2 + representors {
            for (file, text) in [
                ("link_layer", "Ethernet"),
                ("state", "1: DOWN"),
                ("phys_state", "3: Disabled"),
                ("rate", "100 Gb/sec (4X EDR)"),
                ("gids/0", "0000:0000:0000:0000:0000:0000:0000:0000"),
            ] {
                self.write(&format!("{ports}/{port}/{file}"), text);
            }
        }
    }

    /// Moves an interface to another network namespace.
    pub(super) fn no_netdev(&mut self, name: &str) {
        self.list("/addresses")
            .retain(|address| address["netdev"] != name);
        self.remove(&format!("sys/class/net/{name}"));
        for device in fs::read_dir(self.path().join(CLASS))
            .expect("devices")
            .flatten()
        {
            let device = device.path();
            let _ = fs::remove_dir_all(device.join("device/net").join(name));
            let _ = fs::remove_file(device.join("parent"));
            let indices = fs::read_dir(device.join("ports/1/gid_attrs/ndevs"));
            for index in indices.into_iter().flatten().flatten() {
                let is_of = fs::read_to_string(index.path()).is_ok_and(|text| text == name);
                if is_of {
                    let index = index.file_name();
                    let port = device.join("ports/1");
                    for directory in ["gids", "gid_attrs/types", "gid_attrs/ndevs"] {
                        fs::remove_file(port.join(directory).join(&index)).expect("an entry");
                    }
                }
            }
        }
    }
}
