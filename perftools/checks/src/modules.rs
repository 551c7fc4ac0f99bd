//! Kernel modules: loaded now, and configured to be loaded after a reboot.

use std::collections::{BTreeMap, BTreeSet};

use host::HostFacts;
use host::root::Root;

use super::finding::Finding;

/// Directory of rdma-core's lists of modules to load.
const RDMA_MODULES: &str = "/etc/rdma/modules";
/// Names that the module rpcrdma also has.
const ALIASES: &[&str] = &["xprtrdma", "svcrdma"];
/// Directories of systemd's lists of modules to load.
const SYSTEMD_MODULES: [&str; 3] = [
    "/etc/modules-load.d",
    "/usr/lib/modules-load.d",
    "/run/modules-load.d",
];

/// The loaded modules, and those that are configured to be loaded at boot.
#[derive(Debug)]
pub(super) struct Modules {
    loaded: BTreeSet<String>,
    configured: BTreeSet<String>,
    commented_out: BTreeMap<String, DisabledModule>,
}

/// A module whose line in a configuration file is commented out.
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
            .map(normalized)
            .collect();
        let mut modules = Self {
            loaded,
            configured: BTreeSet::new(),
            commented_out: BTreeMap::new(),
        };
        for directory in [RDMA_MODULES].into_iter().chain(SYSTEMD_MODULES) {
            for name in root
                .list(directory)
                .iter()
                .filter(|name| name.strip_suffix(".conf").is_some())
            {
                let file = format!("{directory}/{name}");
                modules.read_configuration(&root.text(&file).unwrap_or_default(), &file);
            }
        }
        modules.read_configuration(
            &root.text("/etc/modules").unwrap_or_default(),
            "/etc/modules",
        );
        modules
    }

    fn read_configuration(&mut self, text: &str, file: &str) {
        for line in text.lines().map(str::trim) {
            let written = line.trim_start_matches('#').trim();
            // A line with more than one word is a comment.
            if !is_module_name(written) {
                continue;
            }
            if line.starts_with('#') {
                let disabled = DisabledModule {
                    written: written.to_owned(),
                    file: file.to_owned(),
                };
                self.commented_out
                    .entry(normalized(written))
                    .or_insert(disabled);
            } else {
                self.configured.insert(normalized(written));
            }
        }
    }

    /// Returns `true` if the module is loaded and not built into the kernel.
    pub(super) fn is_loaded(&self, name: &str) -> bool {
        self.loaded.contains(name)
    }

    /// Returns `true` if a configuration file loads the module at boot.
    pub(super) fn is_configured(&self, name: &str) -> bool {
        self.configured.contains(name)
    }

    /// Returns the command that uncomments the module in its configuration file and loads it.
    /// Returns `None` if the module is not commented out, or is configured elsewhere.
    pub(super) fn enable_command(&self, name: &str) -> Option<String> {
        let DisabledModule { written, file } = self
            .commented_out
            .get(name)
            .filter(|_| !self.is_configured(name))?;
        let rdma_stem = file
            .strip_prefix(RDMA_MODULES)
            .and_then(|file| file.trim_start_matches('/').strip_suffix(".conf"));
        let service = match rdma_stem {
            Some(stem) => format!("rdma-load-modules@{stem}.service"),
            None => "systemd-modules-load.service".to_owned(),
        };
        Some(format!(
            "sed -i 's/^[# ]*{written}\\>/{written}/' {file} && systemctl restart {service}"
        ))
    }
}

/// Returns `true` if the text can be the name of a module.
fn is_module_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

/// Returns the name as the kernel writes it.
fn normalized(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns `true` if the module is loaded or built into the kernel. `witness` is a path that only
/// this module creates.
pub(super) fn present(root: &Root, modules: &Modules, name: &str, witness: Option<&str>) -> bool {
    modules.is_loaded(name)
        || root.exists(&format!("/sys/module/{name}"))
        || witness.is_some_and(|path| root.exists(path))
}

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let modules = Modules::read(facts.root);
    let mut findings = vec![check_devices(facts)];
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
            "ibping, opensm and other tools cannot send management datagrams",
            infiniband,
        ),
    ];
    for (name, witness, consequence, _) in needed.into_iter().filter(|(.., required)| *required) {
        findings.push(check_module(
            facts.root,
            &modules,
            name,
            witness,
            consequence,
        ));
    }
    // The files are loaded when a hardware adapter appears. A software device does not cause it.
    if facts.devices.iter().any(|device| !device.is_software()) {
        findings.extend(check_configured(facts.root, &modules));
    }
    findings
}

/// Returns warnings for the modules that rdma.conf and its siblings name, and that are not loaded.
fn check_configured(root: &Root, modules: &Modules) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in root
        .list(RDMA_MODULES)
        .iter()
        .filter(|name| name.strip_suffix(".conf").is_some())
    {
        // Of these files, only rdma.conf is loaded for every kind of device.
        if name != "rdma.conf" {
            continue;
        }
        let file = format!("{RDMA_MODULES}/{name}");
        let text = root.text(&file).unwrap_or_default();
        let missing: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| is_module_name(line) && !ALIASES.contains(line))
            .filter(|line| !present(root, modules, &normalized(line), None))
            // These are reported with their consequences.
            .filter(|line| !["ib_uverbs", "rdma_ucm", "ib_umad"].contains(line))
            .collect();
        if !missing.is_empty() {
            let stem = name.trim_end_matches(".conf");
            findings.push(
                Finding::warning(format!(
                    "names modules that are not loaded: {}",
                    missing.join(", ")
                ))
                .on(file)
                .with_remedy(format!(
                    "systemctl restart rdma-load-modules@{stem}.service"
                )),
            );
        }
    }
    findings
}

fn check_devices(facts: &HostFacts<'_>) -> Finding {
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
        let software = match software.as_slice() {
            [] => String::new(),
            names => format!(
                " (software devices, to be created again after a reboot with `rdma link add`: {})",
                names.join(", ")
            ),
        };
        return Finding::ok(format!("RDMA devices: {}{software}", names.join(", ")));
    }
    match unused_adapter(facts.root) {
        Some((adapter, module)) => Finding::fault(format!(
            "no RDMA device: the driver for {adapter} is not loaded"
        ))
        .with_remedy(format!("modprobe {module}")),
        None => Finding::fault("no RDMA device on this host")
            .with_remedy("modprobe rdma_rxe && rdma link add rxe0 type rxe netdev NETDEV"),
    }
}

/// Returns an adapter in a PCI slot that supports RDMA, and the module of its driver.
fn unused_adapter(root: &Root) -> Option<(String, &'static str)> {
    const ADAPTERS: &[(&str, &[&str], &str, &str)] = &[
        (
            "0x15b3",
            &["0x1003", "0x1004", "0x1007"],
            "a ConnectX-3",
            "mlx4_ib",
        ),
        ("0x15b3", &[], "an NVIDIA (Mellanox) ConnectX", "mlx5_ib"),
        (
            "0x14e4",
            &["0x16d7", "0x1750", "0x1751", "0x1752"],
            "a Broadcom NetXtreme-E",
            "bnxt_re",
        ),
        ("0x1425", &[], "a Chelsio adapter", "iw_cxgb4"),
        (
            "0x8086",
            &["0x1592", "0x1593", "0x159b"],
            "an Intel E810",
            "irdma",
        ),
        (
            "0x1d0f",
            &["0xefa0", "0xefa1", "0xefa2"],
            "an Amazon EFA",
            "efa",
        ),
    ];
    const BUS: &str = "/sys/bus/pci/devices";
    root.list(BUS).into_iter().find_map(|slot| {
        let vendor = root.value(&format!("{BUS}/{slot}/vendor"))?;
        let device = root.value(&format!("{BUS}/{slot}/device"))?;
        let class = root.value(&format!("{BUS}/{slot}/class"))?;
        let found = ADAPTERS.iter().find(|(v, devices, ..)| {
            *v == vendor && (devices.is_empty() || devices.contains(&device.as_str()))
        });
        found
            .filter(|_| class.starts_with("0x02"))
            .map(|(_, _, name, module)| (format!("{name} in PCI slot {slot}"), *module))
    })
}

fn check_module(
    root: &Root,
    modules: &Modules,
    name: &str,
    witness: Option<&str>,
    consequence: &str,
) -> Finding {
    if !present(root, modules, name, witness) {
        return Finding::fault(format!("not loaded: {consequence}"))
            .on(name)
            .with_remedy(format!("modprobe {name}"));
    }
    if !modules.is_loaded(name) {
        return Finding::ok("built into the kernel").on(name);
    }
    if modules.is_configured(name) {
        return Finding::ok("loaded, and configured to be loaded after a reboot").on(name);
    }
    let remedy = modules
        .enable_command(name)
        .unwrap_or_else(|| format!("echo {name} > {0}/{name}.conf", SYSTEMD_MODULES[0]));
    Finding::warning(format!(
        "loaded, but no file in {RDMA_MODULES} or {} loads it after a reboot",
        SYSTEMD_MODULES[0]
    ))
    .on(name)
    .with_remedy(remedy)
}
