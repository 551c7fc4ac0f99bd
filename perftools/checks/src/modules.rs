//! Kernel modules: loaded now, and configured to be loaded after a reboot.

use host::HostFacts;
use host::modules::{Modules, RDMA_MODULES, SYSTEMD_MODULES};

use super::finding::Finding;

/// Names that the module rpcrdma also has.
const ALIASES: &[&str] = &["xprtrdma", "svcrdma"];

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let modules = &facts.modules;
    let mut findings = vec![check_devices(facts)];
    let infiniband = facts.ports().any(|(_, port)| port.is_infiniband());
    let needed = [
        ("ib_uverbs", "programs cannot use verbs", true),
        ("rdma_ucm", "programs cannot use rdma_cm", true),
        (
            "ib_umad",
            "ibping, opensm and other tools cannot send management datagrams",
            infiniband,
        ),
    ];
    for (name, consequence, _) in needed.into_iter().filter(|(.., required)| *required) {
        findings.push(check_module(modules, name, consequence));
    }
    // The files are loaded when a hardware adapter appears. A software device does not cause it.
    if facts.devices.iter().any(|device| !device.is_software()) {
        findings.extend(check_configured(modules));
    }
    findings
}

/// Returns a warning for the modules that rdma.conf names and that are not loaded.
fn check_configured(modules: &Modules) -> Option<Finding> {
    let missing: Vec<&str> = modules
        .rdma_conf
        .iter()
        .map(String::as_str)
        .filter(|name| !ALIASES.contains(name) && !modules.is_present(name))
        // These are reported with their consequences.
        .filter(|name| !["ib_uverbs", "rdma_ucm", "ib_umad"].contains(name))
        .collect();
    (!missing.is_empty()).then(|| {
        Finding::warning(format!(
            "names modules that are not loaded: {}",
            missing.join(", ")
        ))
        .on(format!("{RDMA_MODULES}/rdma.conf"))
        .with_command("systemctl restart rdma-load-modules@rdma.service")
    })
}

fn check_devices(facts: &HostFacts) -> Finding {
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
    match unused_adapter(facts) {
        Some((adapter, module)) if facts.modules.is_present(module) => Finding::fault(format!(
            "no RDMA device in this network namespace, although {module} is loaded and this host has {adapter}"
        ))
        .with_remedy(format!(
            "rdma dev (in each namespace: ip netns exec NAME rdma dev); move it: rdma dev set DEV netns NAME; or on the host: rdma system set netns shared; if no namespace has it: dmesg | grep {module}"
        )),
        Some((adapter, module)) => Finding::fault(format!(
            "no RDMA device: the driver for {adapter} is not loaded"
        ))
        .with_command(format!("modprobe {module}")),
        None => Finding::fault("no RDMA device on this host")
            .with_remedy("modprobe rdma_rxe && rdma link add rxe0 type rxe netdev NETDEV (on Ubuntu, linux-modules-extra-$(uname -r) has the module)"),
    }
}

/// Returns an adapter in a PCI slot that supports RDMA, and the module of its driver.
fn unused_adapter(facts: &HostFacts) -> Option<(String, &'static str)> {
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
    facts.pci.iter().find_map(|pci| {
        let found = ADAPTERS.iter().find(|(vendor, devices, ..)| {
            *vendor == pci.vendor && (devices.is_empty() || devices.contains(&pci.device.as_str()))
        });
        let (_, _, name, module) = found?;
        Some((format!("{name} in PCI slot {}", pci.slot), *module))
    })
}

fn check_module(modules: &Modules, name: &str, consequence: &str) -> Finding {
    if !modules.is_present(name) {
        return Finding::fault(format!("not loaded: {consequence}"))
            .on(name)
            .with_command(format!("modprobe {name}"));
    }
    if !modules.is_loaded(name) {
        return Finding::ok("built into the kernel").on(name);
    }
    if modules.is_configured(name) {
        return Finding::ok("loaded, and configured to be loaded after a reboot").on(name);
    }
    let remedy = modules
        .enable_command(name)
        .unwrap_or_else(|| format!("echo {name} >> {0}/{name}.conf", SYSTEMD_MODULES[0]));
    Finding::warning(format!(
        "loaded, but no file in {RDMA_MODULES} or {} loads it after a reboot",
        SYSTEMD_MODULES[0]
    ))
    .on(name)
    .with_command(remedy)
}
