//! Hosts made of the facts of a report. `tests/reports/README.md` lists the lines.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use test_support::temp_dir::TempDir;

/// Modules that a host with rdma-core has loaded and configured.
const MODULES: [&str; 4] = ["ib_uverbs", "rdma_ucm", "ib_umad", "ib_core"];
pub(super) const CLASS: &str = "sys/class/infiniband";

/// A host in a directory.
pub(crate) struct Host {
    tree: TempDir,
    probe: Value,
    source: String,
}

/// The kinds of devices.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    InfiniBand,
    Roce,
    Iwarp,
    Efa,
}

impl Host {
    /// Makes the host of a report.
    pub(crate) fn new(source: &str, lines: &[String]) -> Self {
        let mut host = Self {
            tree: TempDir::in_memory(),
            probe: json!({
                "nodes": [node("rdma_cm")],
                "registrations": [], "addresses": [{"netdev": "lo", "ip": "127.0.0.1", "bits": 8}],
                "firewall": {}, "verbs": {"devices": [], "error": null}, "sms": [],
                "link_caps": [], "dcb": [], "pci": [], "limited_processes": [], "transceivers": [], "source_rules": [],
                "link_log": {"boot": 0, "read": 1000, "changes": []},
            }),
            source: source.to_owned(),
        };
        host.write("proc/modules", "");
        for module in MODULES {
            host.load(module);
        }
        host.write("etc/rdma/modules/rdma.conf", "ib_uverbs\nrdma_ucm\n");
        host.write("sys/class/misc/rdma_cm/dev", "10:58");
        host.write("sys/class/infiniband_verbs/abi_version", "6");
        host.write("sys/class/infiniband_mad/abi_version", "5");
        host.write(
            "proc/self/limits",
            "Max locked memory unlimited unlimited bytes\n",
        );
        host.write("proc/self/status", "CapEff:\t0000000000000000\n");
        for line in lines {
            host.apply(line);
        }
        host.write("probe.json", &host.probe.to_string());
        host
    }

    /// Returns the directory.
    pub(crate) fn path(&self) -> &Path {
        self.tree.path()
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        self.tree.write(path.trim_start_matches('/'), text);
    }

    pub(super) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path().join(path)).unwrap_or_default()
    }

    pub(super) fn remove(&self, path: &str) {
        let path = self.path().join(path);
        let removed = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        removed.unwrap_or_else(|e| panic!("{}: {}: {e}", self.source, path.display()));
    }

    /// Creates a link to a name in the parent directory.
    pub(super) fn link(&self, path: &str, target: &str) {
        let link = self.path().join(path);
        fs::create_dir_all(link.parent().expect("a parent")).expect("directories");
        symlink(Path::new("..").join(target), link).expect("a link");
    }

    fn load(&self, module: &str) {
        self.write(
            "proc/modules",
            &(self.read("proc/modules") + module + " 1 0 - Live 0x0\n"),
        );
    }

    pub(super) fn list(&mut self, pointer: &str) -> &mut Vec<Value> {
        let list = self
            .probe
            .pointer_mut(pointer)
            .and_then(Value::as_array_mut);
        list.expect("a list")
    }

    /// Applies a line. Words with spaces are between quotation marks.
    fn apply(&mut self, line: &str) {
        if let Some((path, text)) = line.split_once(" = ") {
            if path.starts_with('/') {
                // The ends of lines are written as in a string.
                return self.write(path, &(text.replace("\\n", "\n") + "\n"));
            }
        }
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let is_known =
            self.add(&words) || self.hide(&words) || self.set(&words) || self.see(&words);
        assert!(is_known, "{}: {line}", self.source);
    }

    /// Adds a device or an interface.
    fn add(&mut self, words: &[&str]) -> bool {
        match words {
            ["ib", rest @ ..] => self.device(Kind::InfiniBand, rest),
            ["roce", rest @ ..] => self.device(Kind::Roce, rest),
            ["iwarp", rest @ ..] => self.device(Kind::Iwarp, rest),
            ["efa", rest @ ..] => self.device(Kind::Efa, rest),
            ["netdev", name, rest @ ..] => self.netdev(name, "1", "02:00:00:00:00:99", rest),
            ["ipoib", name, device, rest @ ..] => {
                let guid = self.read(&format!("{CLASS}/{device}/node_guid"));
                let bytes = guid.trim().replace(':', "");
                let bytes: Vec<&str> = (0..8).map(|at| &bytes[at * 2..at * 2 + 2]).collect();
                let address = format!("00:00:01:07:fe:80:00:00:00:00:00:00:{}", bytes.join(":"));
                self.netdev(name, "32", &address, rest);
            }
            ["address", name, address] => self.address(name, address),
            ["gid", device, index, gid, kind, netdev] => {
                self.gid(device, 1, index, gid, kind, netdev);
            }
            ["adapter", slot, vendor, model, driver @ ..] => {
                let path = format!("sys/bus/pci/devices/{slot}");
                self.write(&format!("{path}/class"), "0x020000");
                self.write(&format!("{path}/vendor"), vendor);
                self.write(&format!("{path}/device"), model);
                if let [driver] = driver {
                    self.link(&format!("{path}/driver"), driver);
                }
            }
            ["pci", slot, rest @ ..] => self.pci(slot, rest),
            ["load", module] => self.load(module),
            ["link", path, target] => self.link(path, target),
            _ => return false,
        }
        true
    }

    /// Takes away a part of the host.
    fn hide(&mut self, words: &[&str]) -> bool {
        match words {
            ["unload", module] => {
                let text = self.read("proc/modules");
                let kept = text
                    .lines()
                    .filter(|line| !line.starts_with(&format!("{module} ")));
                self.write(
                    "proc/modules",
                    &kept.map(|l| l.to_owned() + "\n").collect::<String>(),
                );
                match *module {
                    "ib_umad" => self.remove("sys/class/infiniband_mad/abi_version"),
                    "ib_uverbs" => self.remove("sys/class/infiniband_verbs/abi_version"),
                    "rdma_ucm" => self.remove("sys/class/misc/rdma_cm"),
                    _ => {}
                }
            }
            ["no-node", name] => self.list("/nodes").retain(|node| node["name"] != *name),
            ["no-nodes"] => {
                self.list("/nodes").clear();
                self.list("/registrations").clear();
            }
            ["closed-node", name, mode] => {
                let mode = u32::from_str_radix(mode, 8).expect("a mode");
                let all = self.list("/nodes").iter_mut();
                for node in all.filter(|node| node["name"] == *name) {
                    node["mode"] = mode.into();
                    node["open"] = json!({"Err": "Permission denied (os error 13)"});
                }
            }
            ["open-node", name] => {
                let all = self.list("/nodes").iter_mut();
                for found in all.filter(|node| node["name"] == *name) {
                    *found = node(name);
                }
            }
            ["denied-node", name, error] => {
                let all = self.list("/nodes").iter_mut();
                for node in all.filter(|node| node["name"] == *name) {
                    node["open"] = json!({"Err": error});
                }
            }
            ["no-provider", device] => {
                self.list("/verbs/devices")
                    .retain(|found| found["hca_id"] != *device);
            }
            ["container", "docker"] => self.write(".dockerenv", ""),
            ["container", "podman"] => self.write("run/.containerenv", ""),
            ["container", "pod"] => self.write("var/run/secrets/kubernetes.io/.keep", ""),
            ["container", runtime] => self.write("run/systemd/container", runtime),
            ["remove", path] => self.remove(path),
            ["no-netdev", name] => self.no_netdev(name),
            ["no-address", name] => {
                self.list("/addresses")
                    .retain(|address| address["netdev"] != *name);
                self.no_gids_of_addresses(name);
            }
            ["virtual", device] => self.make_virtual(device),
            ["switchdev", device, netdev, representors] => {
                let count = representors.parse().expect("a number");
                self.make_switchdev(device, netdev, count);
            }
            ["no-gids", device] => self.remove(&format!("{CLASS}/{device}/ports/1/gids")),
            ["down", name] => {
                self.write(&format!("sys/class/net/{name}/flags"), "0x1002");
                self.write(&format!("sys/class/net/{name}/operstate"), "down");
            }
            ["no-carrier", name] => self.write(&format!("sys/class/net/{name}/carrier"), "0"),
            _ => return false,
        }
        true
    }

    /// Changes a setting.
    fn set(&mut self, words: &[&str]) -> bool {
        match words {
            ["state", device, state] => self.state(device, 1, state),
            ["memlock", kib] => self.memlock(kib.parse::<u64>().expect("a number") * 1024),
            ["vlan", name, lower, mtu, ip] => self.stack(name, lower, mtu, ip),
            ["bridge", name, lower, ip] => {
                let mtu = self.read(&format!("sys/class/net/{lower}/mtu"));
                self.stack(name, lower, &mtu, ip);
                self.link(&format!("sys/class/net/{lower}/master"), name);
            }
            ["mtu", name, mtu] => self.write(&format!("sys/class/net/{name}/mtu"), mtu),
            ["active-mtu", device, code] => {
                let all = self.list("/verbs/devices").iter_mut();
                for found in all.filter(|found| found["hca_id"] == *device) {
                    found["opened"]["Ok"]["ports"][0]["active_mtu"] =
                        code.parse::<u32>().expect("a code").into();
                }
            }
            ["counter", device, name, value] => {
                self.write(&format!("{CLASS}/{device}/ports/1/{name}"), value);
            }
            ["pcie", device, speed, width] => {
                let path = format!("{CLASS}/{device}/device/current_link");
                self.write(&format!("{path}_speed"), &format!("{speed} GT/s PCIe"));
                self.write(&format!("{path}_width"), width);
            }
            _ => return false,
        }
        true
    }

    /// Adds what the probe of a host returns.
    fn see(&mut self, words: &[&str]) -> bool {
        match words {
            ["change", netdev, at, direction] => {
                let at = at.parse::<u64>().expect("a time");
                let change = json!({"netdev": netdev, "at": at, "up": *direction == "up"});
                self.list("/link_log/changes").push(change);
                self.probe["link_log"]["read"] = (at + 1000).into();
            }
            ["transceiver", netdev, temperature, alarms @ ..] => {
                let found = json!({"netdev": netdev, "temperature": temperature, "alarms": alarms});
                self.list("/transceivers").push(found);
            }
            ["sm", device, state, rest @ ..] => self.subnet_manager(device, state, rest),
            ["add-node", name] => self.list("/nodes").push(node(name)),
            ["source-rule", source] => self.list("/source_rules").push(json!(source)),
            ["process", text] => self.list("/limited_processes").push(json!(text)),
            ["iptables", rules] => {
                self.probe["firewall"]["iptables"] = rules.replace("\\n", "\n").into();
            }
            ["dcb", netdev, priorities] => {
                let on: Vec<bool> = (0..8)
                    .map(|n| priorities.contains(&n.to_string()))
                    .collect();
                let dscp: Vec<[u8; 2]> = (0..64).map(|dscp| [dscp, dscp / 8]).collect();
                let found = json!({"netdev": netdev,
                    "pfc": json!({"pfc_cap": 8, "prio_pfc": on}).to_string(),
                    "app": json!({"dscp_prio": dscp}).to_string()});
                self.list("/dcb").push(found);
            }
            _ => return false,
        }
        true
    }

    /// Adds a device: its name, and settings `KEY=VALUE`. Those of Ethernet begin with the
    /// interface and its address.
    fn device(&mut self, kind: Kind, words: &[&str]) {
        let (name, rest) = words.split_first().expect("a name");
        let number = self.list("/verbs/devices").len();
        let (netdev, ip, rest) = match (kind, rest) {
            (Kind::Roce | Kind::Iwarp, [netdev, ip, rest @ ..]) => (Some(*netdev), *ip, rest),
            _ => (None, "", rest),
        };
        let setting = |key: &str, default: &str| {
            let mut found = rest.iter().filter_map(|word| word.split_once('='));
            let found = found.find(|(known, _)| *known == key);
            found.map_or(default, |(_, value)| value).to_owned()
        };
        let (driver, rate) = match kind {
            Kind::Iwarp => ("iw_cxgb4", "100 Gb/sec (4X EDR)"),
            Kind::Efa => ("efa", "100 Gb/sec (4X EDR)"),
            _ => ("mlx5_core", "100 Gb/sec (4X EDR)"),
        };
        let driver = setting("driver", driver);
        // That of a software device is the EUI-64 of the MAC, and firmware has any.
        let begin = if driver == "none" { "0000" } else { "0200" };
        let guid = format!("{begin}:00ff:fe00:{number:04x}");
        let file = |path: &str, text: &str| self.write(&format!("{CLASS}/{name}/{path}"), text);
        file(
            "node_type",
            match kind {
                Kind::InfiniBand | Kind::Roce => "1: CA",
                Kind::Iwarp => "4: RNIC",
                Kind::Efa => "7: unspecified",
            },
        );
        file("node_guid", &guid);
        file("sys_image_guid", &guid);
        file("fw_ver", &setting("fw", "20.35.1012"));
        if let model @ 1.. = setting("type", "").len() {
            file("hca_type", &setting("type", "")[..model]);
        }
        if driver != "none" {
            let slot = setting("slot", &format!("0000:{:02x}:00.0", 0x10 + number));
            let (speed, width) = (setting("speed", "16.0"), setting("width", "16"));
            for kind in ["current", "max"] {
                file(
                    &format!("device/{kind}_link_speed"),
                    &format!("{speed} GT/s PCIe"),
                );
                file(&format!("device/{kind}_link_width"), &width);
            }
            file("device/uevent", &format!("PCI_SLOT_NAME={slot}"));
            self.link(&format!("{CLASS}/{name}/device/driver"), &driver);
        }
        let ports: usize = setting("ports", "1").parse().expect("a number");
        let has_mad = matches!(kind, Kind::InfiniBand | Kind::Roce) && driver != "mana";
        for port in 1..=ports {
            self.port(kind, name, port, &setting("rate", rate));
            if has_mad {
                let umad = format!("umad{}", number * 2 + port - 1);
                let path = format!("sys/class/infiniband_mad/{umad}");
                self.write(&format!("{path}/ibdev"), name);
                self.write(&format!("{path}/port"), &port.to_string());
                self.list("/nodes").push(node(&umad));
            }
        }
        let uverbs = format!("uverbs{number}");
        self.write(&format!("sys/class/infiniband_verbs/{uverbs}/ibdev"), name);
        self.list("/nodes").push(node(&uverbs));
        let registered = json!({"device": name, "bytes": 16 << 20, "result": {"Ok": null}});
        self.list("/registrations").push(registered);
        let port = json!({"port": 1, "state": 4, "max_mtu": 5, "active_mtu": 5, "gids": []});
        self.list("/verbs/devices").push(json!({"hca_id": name, "transport": "x",
            "transport_code": 0, "node_guid": guid, "opened": {"Ok": {"attr": {}, "ports": [port]}}}));
        if kind == Kind::InfiniBand {
            self.subnet_manager(name, "master", &[]);
        }
        if let Some(netdev) = netdev {
            let has_parent = driver == "none";
            self.ethernet(kind, name, has_parent, (netdev, ip));
        }
    }

    /// Adds a port, which is up.
    fn port(&self, kind: Kind, device: &str, port: usize, rate: &str) {
        let file = |path: &str, text: &str| {
            self.write(&format!("{CLASS}/{device}/ports/{port}/{path}"), text);
        };
        let (layer, lid, sm_lid) = match kind {
            Kind::InfiniBand => ("InfiniBand", "0x3", "0x1"),
            Kind::Roce | Kind::Iwarp => ("Ethernet", "0x0", "0x0"),
            Kind::Efa => ("Unknown", "0x0", "0x0"),
        };
        let guid = self.read(&format!("{CLASS}/{device}/node_guid"));
        file("link_layer", layer);
        file("state", "4: ACTIVE");
        file("phys_state", "5: LinkUp");
        file("rate", rate);
        file("lid", lid);
        file("sm_lid", sm_lid);
        if kind != Kind::Iwarp {
            file("pkeys/0", "0xffff");
        }
        file("gids/0", &format!("fe80:0000:0000:0000:{guid}"));
    }

    /// Adds the interface of a device, and its GIDs.
    fn ethernet(&mut self, kind: Kind, name: &str, has_parent: bool, (netdev, ip): (&str, &str)) {
        let number = self.list("/verbs/devices").len() - 1;
        let address = format!("02:00:00:00:00:{number:02x}");
        self.netdev(netdev, "1", &address, &["9000"]);
        if !has_parent && kind == Kind::Roce {
            let path = format!("{CLASS}/{name}/device/net/{netdev}");
            self.write(&format!("{path}/type"), "1");
            self.write(&format!("{path}/dev_port"), "0");
        }
        if kind == Kind::Iwarp {
            let gid = address.replace(':', "");
            let (first, rest) = gid.split_at(4);
            let (second, third) = rest.split_at(4);
            let gid = format!("{first}:{second}:{third}:0000:0000:0000:0000:0000");
            if has_parent {
                self.gid(name, 1, "0", &gid, "IB/RoCE v1", netdev);
            } else {
                // Kernels before 6.5 have no interface of an entry of iWARP.
                self.write(&format!("{CLASS}/{name}/ports/1/gids/0"), &gid);
            }
        } else {
            // EUI-64 of the address, as addrconf_ifid_eui48 makes the default GIDs.
            let link_local = format!("fe80:0000:0000:0000:0000:00ff:fe00:{number:04x}");
            self.gids(name, 0, &link_local, netdev);
        }
        // Soft-iWARP has no such attribute.
        if kind == Kind::Roce && has_parent {
            self.write(&format!("{CLASS}/{name}/parent"), netdev);
        }
        if ip == "-" {
            return;
        }
        self.address(netdev, ip);
        if kind == Kind::Roce {
            let ip = ip.split('/').next().expect("an address");
            let gid = match ip.parse::<std::net::Ipv4Addr>() {
                Ok(v4) => {
                    let [a, b, c, d] = v4.octets();
                    format!("::ffff:{a:02x}{b:02x}:{c:02x}{d:02x}")
                }
                Err(_) => ip.to_owned(),
            };
            self.gids(name, 2, &gid, netdev);
        }
    }

    /// Adds an address to the GID table. Soft-RoCE has entries of RoCE v2 only.
    fn gids(&self, device: &str, index: u32, gid: &str, netdev: &str) {
        let is_software = !self
            .path()
            .join(format!("{CLASS}/{device}/device"))
            .exists();
        if is_software {
            return self.gid(device, 1, &(index / 2).to_string(), gid, "RoCE v2", netdev);
        }
        self.gid(device, 1, &index.to_string(), gid, "IB/RoCE v1", netdev);
        self.gid(device, 1, &(index + 1).to_string(), gid, "RoCE v2", netdev);
    }

    pub(super) fn gid(
        &self,
        device: &str,
        port: u32,
        index: &str,
        gid: &str,
        kind: &str,
        netdev: &str,
    ) {
        let path = format!("{CLASS}/{device}/ports/{port}");
        self.write(&format!("{path}/gids/{index}"), gid);
        self.write(&format!("{path}/gid_attrs/types/{index}"), kind);
        self.write(&format!("{path}/gid_attrs/ndevs/{index}"), netdev);
    }

    fn address(&mut self, netdev: &str, address: &str) {
        let (ip, bits) = address.split_once('/').expect("an address with a prefix");
        let bits: u32 = bits.parse().expect("a prefix");
        self.list("/addresses")
            .push(json!({"netdev": netdev, "ip": ip, "bits": bits}));
    }

    /// Adds an interface: its MTU and an address.
    pub(super) fn netdev(&mut self, name: &str, kind: &str, hardware: &str, rest: &[&str]) {
        let file =
            |path: &str, text: &str| self.write(&format!("sys/class/net/{name}/{path}"), text);
        file("type", kind);
        file("address", hardware);
        file("flags", "0x1003");
        file("carrier", "1");
        file("operstate", "up");
        file("dev_port", "0");
        file("mtu", rest.first().copied().unwrap_or("1500"));
        if kind == "32" {
            file("pkey", "0xffff");
        }
        for word in rest.iter().skip(1) {
            match word.split_once('=') {
                Some((key, value)) => self.write(&format!("sys/class/net/{name}/{key}"), value),
                None => self.address(name, word),
            }
        }
    }

    fn state(&mut self, device: &str, port: u32, state: &str) {
        let (state, physical) = match state {
            "ACTIVE" => ("4: ACTIVE", "5: LinkUp"),
            "INIT" => ("2: INIT", "5: LinkUp"),
            "ARMED" => ("3: ARMED", "5: LinkUp"),
            "Polling" => ("1: DOWN", "2: Polling"),
            "Disabled" => ("1: DOWN", "3: Disabled"),
            other => panic!("{}: state {other}", self.source),
        };
        let path = format!("{CLASS}/{device}/ports/{port}");
        self.write(&format!("{path}/state"), state);
        self.write(&format!("{path}/phys_state"), physical);
        if state != "4: ACTIVE" {
            self.list("/sms").retain(|sm| sm["device"] != device);
        }
    }

    pub(super) fn subnet_manager(&mut self, device: &str, state: &str, rest: &[&str]) {
        let code = match state {
            "master" => 3,
            "standby" => 2,
            _ => 0,
        };
        let sm = match (state, rest) {
            ("error", [error]) => json!({"Err": error}),
            _ => {
                json!({"Ok": {"lid": 1, "guid": 1, "activity_count": 1, "priority": 14, "state": code}})
            }
        };
        self.list("/sms").retain(|sm| sm["device"] != device);
        let found = json!({"device": device, "port": 1, "sm": sm, "standby": {"Ok": []}});
        self.list("/sms").push(found);
    }

    /// Adds a PCI function: the bridge above it or `-`, its class and vendor, and settings.
    fn pci(&mut self, slot: &str, rest: &[&str]) {
        let [parent, class, vendor, settings @ ..] = rest else {
            panic!("{}: pci {slot}", self.source);
        };
        let mut function = json!({"slot": slot, "class": class, "vendor": vendor});
        if *parent != "-" {
            function["parent"] = json!(parent);
        }
        for (key, value) in settings
            .iter()
            .filter_map(|setting| setting.split_once('='))
        {
            match key {
                "driver" => function["driver"] = json!(value),
                "acs" => function["acs"] = json!(u16::from_str_radix(value, 16).expect("hex")),
                "ats" => function["ats"] = json!(value == "on"),
                // The current speed and width, and the highest ones.
                "link" => {
                    let parts: Vec<&str> = value.split(['x', '/']).collect();
                    let speed = |at: usize| format!("{} GT/s PCIe", parts[at]);
                    let width = |at: usize| parts[at].parse::<u32>().expect("a width");
                    function["link"] = json!({"current_speed": speed(0), "current_width": width(1),
                        "max_speed": speed(2), "max_width": width(3)});
                }
                other => panic!("{}: {other}", self.source),
            }
        }
        self.list("/pci").push(function);
    }
}

fn node(name: &str) -> Value {
    let mode = if name.starts_with("umad") {
        0o600
    } else {
        0o666
    };
    json!({"name": name, "mode": mode, "device": true, "open": {"Ok": null}})
}

/// Splits a line into words. A quoted part can contain spaces.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            _ => words.last_mut().expect("a word").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
