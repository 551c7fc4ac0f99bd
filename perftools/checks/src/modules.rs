//! Kernel modules of the devices and of the programs.

use host::HostFacts;
use host::adapters::Adapter;
use host::device::Device;
use host::modules::{Modules, RDMA_CONF};

use super::finding::Finding;

/// Names that the module rpcrdma also has.
const ALIASES: &[&str] = &["xprtrdma", "svcrdma"];

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let modules = &facts.modules;
    let mut findings = vec![check_devices(facts)];
    findings.extend(check_unbound(facts));
    let infiniband = facts.ports().any(|(_, port)| port.is_infiniband());
    let has_rdma_cm = facts.ports().any(|(device, _)| facts.has_rdma_cm(device));
    let needed = [
        ("ib_uverbs", "programs cannot use verbs", true),
        ("rdma_ucm", "programs cannot use rdma_cm", has_rdma_cm),
        (
            "ib_umad",
            "ibping, opensm and other tools cannot send management datagrams",
            infiniband,
        ),
    ];
    // rdma-core loads them when a device appears (90-rdma-hw-modules.rules).
    let has_device = !facts.devices.is_empty();
    let needed = needed
        .into_iter()
        .filter(|(.., required)| *required && has_device);
    for (name, consequence, _) in needed {
        findings.push(check_module(facts, name, consequence));
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
        .on(RDMA_CONF)
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
    // An adapter whose driver is loaded says more than one without.
    let mut adapters: Vec<&Adapter> = facts.adapters.iter().collect();
    adapters.sort_by_key(|adapter| !facts.modules.is_present(adapter.rdma_module));
    adapters.first().map_or_else(
        || {
            Finding::fault("no RDMA device on this host").with_remedy("modprobe rdma_rxe && rdma link add rxe0 type rxe netdev NETDEV (if the kernel lacks the module: the package linux-modules-extra-$(uname -r) of Ubuntu, kernel-modules-extra of Red Hat, or another kernel)")
        },
        |adapter| check_adapter(facts, adapter),
    )
}

/// Returns warnings for adapters beside the RDMA devices whose driver did not start. A virtual
/// function without a driver waits for a guest.
fn check_unbound(facts: &HostFacts) -> Vec<Finding> {
    if facts.devices.iter().all(Device::is_software) || facts.environment.container.is_some() {
        return Vec::new();
    }
    let is_unbound = |adapter: &&Adapter| {
        let is_loaded = facts.modules.is_present(adapter.pci_module);
        adapter.driver.is_none() && !adapter.is_virtual && (is_loaded || adapter.in_recovery)
    };
    let warn = |adapter: &Adapter| {
        if adapter.in_recovery {
            return check_adapter(facts, adapter);
        }
        Finding::warning(format!(
            "{} is not bound to the driver {}, because its start failed or was prevented",
            adapter.place(),
            adapter.pci_module
        ))
        .with_remedy(probe_again(adapter))
    };
    facts.adapters.iter().filter(is_unbound).map(warn).collect()
}

/// Returns the remedy for an adapter whose driver did not start.
fn probe_again(adapter: &Adapter) -> String {
    let Adapter {
        slot, pci_module, ..
    } = adapter;
    format!(
        "dmesg | grep -e {slot} -e {pci_module} (for the reason: firmware, memory, PCIe errors); then: echo {slot} > /sys/bus/pci/drivers_probe"
    )
}

/// Returns the reason why an adapter has no RDMA device.
fn check_adapter(facts: &HostFacts, adapter: &Adapter) -> Finding {
    let modules = &facts.modules;
    let Adapter {
        slot,
        pci_module,
        rdma_module: rdma,
        driver,
        lacks_module,
        in_recovery,
        ..
    } = adapter;
    if *in_recovery {
        return Finding::fault(format!(
            "{} is in recovery mode: its firmware did not start",
            adapter.place()
        ))
        .with_remedy(format!(
            "write the firmware of its board again: flint -d {slot} -i IMAGE burn (flint -d {slot} query shows the board), then switch the host off and on"
        ));
    }
    let remedy = probe_again(adapter);
    let adapter = adapter.place();
    let is_loaded = modules.is_present(rdma);
    match driver {
        Some(other) if other.starts_with("vfio") || other == "pci-stub" || other == "uio_pci_generic" => {
            Finding::fault(format!(
                "no RDMA device: {other} has reserved {adapter} for a virtual machine or a program"
            ))
            .with_remedy(format!(
                "run ribinfo in the virtual machine; to use the adapter on this host when nothing else does: driverctl unset-override {slot}"
            ))
        }
        None if modules.is_present(pci_module) => Finding::fault(format!(
            "no RDMA device: the driver {pci_module} is loaded, but {adapter} is not bound to it, because its start failed or was prevented"
        ))
        .with_remedy(remedy),
        _ if is_loaded && facts.shares_devices == Some(true) => Finding::fault(format!(
            "no RDMA device, although {rdma} is loaded and this host has {adapter}: RDMA is disabled, or its start failed"
        ))
        .with_remedy(format!(
            "dmesg | grep {rdma} (for the reason); devlink dev param show pci/{slot} (enable_rdma or enable_roce can be false, or RDMA is disabled in the firmware)"
        )),
        _ if is_loaded => Finding::fault(format!(
            "no RDMA device in this network namespace, although {rdma} is loaded and this host has {adapter}"
        ))
        .with_remedy(format!(
            "rdma dev (in each namespace: ip netns exec NAME rdma dev); move it: rdma dev set DEV netns NAME; or on the host: rdma system set netns shared; if no namespace has it: dmesg | grep {rdma}; devlink dev param show pci/{slot} (RDMA can be disabled)"
        )),
        _ if *lacks_module => Finding::fault(format!(
            "no RDMA device: this kernel has no module {rdma}, the driver for {adapter}"
        ))
        .with_remedy(format!(
            "install the package with more modules for this kernel (Ubuntu: linux-modules-extra-$(uname -r); Red Hat: kernel-modules-extra), a newer kernel, or the driver of the vendor; then: modprobe {rdma}"
        )),
        _ => Finding::fault(format!(
            "no RDMA device: the driver for {adapter} is not loaded"
        ))
        .with_command(format!("modprobe {rdma}")),
    }
}

fn check_module(facts: &HostFacts, name: &str, consequence: &str) -> Finding {
    let modules = &facts.modules;
    if !modules.is_present(name) {
        return Finding::fault(format!("not loaded: {consequence}"))
            .on(name)
            .with_command(format!("modprobe {name}"));
    }
    // After a reboot, the kernel loads it for the first program, if no file does
    // (`MODULE_ALIAS_RDMA_CLIENT`).
    Finding::ok("loaded").on(name)
}
