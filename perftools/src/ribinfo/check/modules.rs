//! Kernel modules: loaded, and configured to be loaded again.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Finding;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::root::Root;

/// Where modules are named that shall be loaded: by rdma-core for RDMA hardware, and by systemd.
const RDMA_MODULES: &str = "/etc/rdma/modules";
const LOAD: [&str; 3] = [
    "/etc/modules-load.d",
    "/usr/lib/modules-load.d",
    "/run/modules-load.d",
];

/// What the kernel has, and what it shall have at the next start.
#[derive(Debug)]
pub(super) struct Modules {
    loaded: BTreeSet<String>,
    configured: BTreeSet<String>,
    off: BTreeMap<String, DisabledModule>,
}

/// A module's line behind a `#`.
#[derive(Debug)]
struct DisabledModule {
    written: String,
    file: String,
}

impl Modules {
    pub(super) fn read(root: &Root) -> Self {
        let loaded = root.text("/proc/modules").unwrap_or_default();
        let loaded = loaded
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .map(normal)
            .collect();
        let mut modules = Self {
            loaded,
            configured: BTreeSet::new(),
            off: BTreeMap::new(),
        };
        for directory in [RDMA_MODULES].into_iter().chain(LOAD) {
            for name in root
                .list(directory)
                .iter()
                .filter(|name| name.strip_suffix(".conf").is_some())
            {
                let file = format!("{directory}/{name}");
                modules.configuration(&root.text(&file).unwrap_or_default(), &file);
            }
        }
        modules.configuration(
            &root.text("/etc/modules").unwrap_or_default(),
            "/etc/modules",
        );
        modules
    }

    fn configuration(&mut self, text: &str, file: &str) {
        for line in text.lines().map(str::trim) {
            let written = line.trim_start_matches('#').trim();
            // One module a line; what has more words is a comment.
            if !is_module(written) {
                continue;
            }
            if line.starts_with('#') {
                let off = DisabledModule {
                    written: written.to_owned(),
                    file: file.to_owned(),
                };
                self.off.entry(normal(written)).or_insert(off);
            } else {
                self.configured.insert(normal(written));
            }
        }
    }

    /// Whether it can be unloaded, so that somebody has to load it.
    pub(super) fn is_loaded(&self, name: &str) -> bool {
        self.loaded.contains(name)
    }

    pub(super) fn is_configured(&self, name: &str) -> bool {
        self.configured.contains(name)
    }

    /// The command that takes the `#` away behind which it stands in a file.
    pub(super) fn switch_on(&self, name: &str) -> Option<String> {
        let DisabledModule { written, file } =
            self.off.get(name).filter(|_| !self.is_configured(name))?;
        let of_rdma = file
            .strip_prefix(RDMA_MODULES)
            .and_then(|file| file.trim_start_matches('/').strip_suffix(".conf"));
        let service = match of_rdma {
            Some(stem) => format!("rdma-load-modules@{stem}.service"),
            None => "systemd-modules-load.service".to_owned(),
        };
        Some(format!(
            "sed -i 's/^[# ]*{written}\\>/{written}/' {file} && systemctl restart {service}"
        ))
    }
}

/// Whether it can be a module's name.
fn is_module(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

fn normal(name: &str) -> String {
    name.replace('-', "_")
}

/// Whether the kernel has a module, loaded or built in. `witness` is a path that only it makes.
pub(super) fn present(root: &Root, modules: &Modules, name: &str, witness: Option<&str>) -> bool {
    modules.is_loaded(name)
        || root.exists(&format!("/sys/module/{name}"))
        || witness.is_some_and(|path| root.exists(path))
}

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let modules = Modules::read(facts.root);
    let mut findings = vec![devices(facts)];
    let infiniband = facts.ports().any(|(_, port)| !port.is_ethernet());
    let needed = [
        (
            "ib_uverbs",
            Some("/sys/class/infiniband_verbs/abi_version"),
            "programs cannot use verbs",
            true,
        ),
        (
            "rdma_ucm",
            Some("/sys/class/misc/rdma_cm"),
            "programs cannot use rdma_cm",
            true,
        ),
        (
            "ib_umad",
            Some("/sys/class/infiniband_mad/abi_version"),
            "ibstat, ibping and opensm cannot send datagrams",
            infiniband,
        ),
    ];
    for (name, witness, without, _) in needed.into_iter().filter(|(.., wanted)| *wanted) {
        findings.push(module(facts.root, &modules, name, witness, without));
    }
    findings
}

fn devices(facts: &HostFacts<'_>) -> Finding {
    let names: Vec<&str> = facts
        .devices
        .iter()
        .map(|device| device.name.as_str())
        .collect();
    if !names.is_empty() {
        let software: Vec<&str> = facts
            .devices
            .iter()
            .filter(|d| d.is_software())
            .map(|d| d.name.as_str())
            .collect();
        let lasting = match software.as_slice() {
            [] => String::new(),
            some => format!(
                " (in software, so gone after a reboot until `rdma link add`: {})",
                some.join(", ")
            ),
        };
        return Finding::ok(format!("RDMA devices: {}{lasting}", names.join(", ")));
    }
    let fault = Finding::fault("this host has no RDMA device");
    match card(facts.root) {
        Some((what, module)) => Finding::fault(format!(
            "this host has no RDMA device, but there is {what}, whose driver is not loaded"
        ))
        .mend(format!("modprobe {module}")),
        None => fault.mend("modprobe rdma_rxe && rdma link add rxe0 type rxe netdev NETDEV"),
    }
}

/// A card in a slot that some driver would make an RDMA device of.
fn card(root: &Root) -> Option<(String, &'static str)> {
    const CARDS: &[(&str, &[&str], &str, &str)] = &[
        (
            "0x15b3",
            &["0x1003", "0x1004", "0x1007"],
            "a ConnectX-3",
            "mlx4_ib",
        ),
        ("0x15b3", &[], "a ConnectX of NVIDIA (Mellanox)", "mlx5_ib"),
        (
            "0x14e4",
            &["0x16d7", "0x1750", "0x1751", "0x1752"],
            "a NetXtreme-E of Broadcom",
            "bnxt_re",
        ),
        ("0x1425", &[], "a Chelsio", "iw_cxgb4"),
        (
            "0x8086",
            &["0x1592", "0x1593", "0x159b"],
            "an E810 of Intel",
            "irdma",
        ),
        (
            "0x1d0f",
            &["0xefa0", "0xefa1", "0xefa2"],
            "an EFA of Amazon",
            "efa",
        ),
    ];
    const BUS: &str = "/sys/bus/pci/devices";
    root.list(BUS).into_iter().find_map(|slot| {
        let vendor = root.value(&format!("{BUS}/{slot}/vendor"))?;
        let device = root.value(&format!("{BUS}/{slot}/device"))?;
        let class = root.value(&format!("{BUS}/{slot}/class"))?;
        let found = CARDS.iter().find(|(v, devices, ..)| {
            *v == vendor && (devices.is_empty() || devices.contains(&device.as_str()))
        });
        found
            .filter(|_| class.starts_with("0x02"))
            .map(|(_, _, what, module)| (format!("{what} in slot {slot}"), *module))
    })
}

fn module(
    root: &Root,
    modules: &Modules,
    name: &str,
    witness: Option<&str>,
    without: &str,
) -> Finding {
    if !present(root, modules, name, witness) {
        return Finding::fault(format!("it is not loaded: {without}"))
            .on(name)
            .mend(format!("modprobe {name}"));
    }
    if !modules.is_loaded(name) {
        return Finding::ok("it is part of the kernel").on(name);
    }
    if modules.is_configured(name) {
        return Finding::ok("it is loaded, and will be after a reboot").on(name);
    }
    let remedy = modules
        .switch_on(name)
        .unwrap_or_else(|| format!("echo {name} > {0}/{name}.conf", LOAD[0]));
    Finding::warning(format!(
        "it is loaded, but no file in {RDMA_MODULES} or {} will load it after a reboot",
        LOAD[0]
    ))
    .on(name)
    .mend(remedy)
}
