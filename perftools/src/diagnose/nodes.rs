//! Device nodes: there, and open to this user.

use super::finding::Finding;
use crate::facts::Facts;
use crate::facts::probe::Node;

const DIRECTORY: &str = "/dev/infiniband";

pub(super) fn check(facts: &Facts<'_>) -> Vec<Finding> {
    let node = |name: &str| facts.probe.nodes.iter().find(|node| node.name == name);
    let mut findings = Vec::new();
    for device in &facts.devices {
        match &device.uverbs {
            None => findings.push(
                Finding::fault("the kernel offers no verbs for it: ib_uverbs is not loaded")
                    .on(&device.name)
                    .mend("modprobe ib_uverbs"),
            ),
            Some(name) => findings.push(judge(&device.name, name, node(name))),
        }
        if device.uverbs.is_some() {
            findings.extend(library(facts, &device.name));
        }
    }
    if !facts.devices.is_empty() && facts.root.exists("/sys/class/misc/rdma_cm") {
        findings.push(judge("rdma_cm", "rdma_cm", node("rdma_cm")));
    }
    findings
}

fn judge(object: &str, name: &str, node: Option<&Node>) -> Finding {
    let path = format!("{DIRECTORY}/{name}");
    let Some(node) = node else {
        return Finding::fault(format!("{path} is missing: udev did not make it"))
            .on(object)
            .mend("udevadm trigger --subsystem-match=infiniband_verbs --subsystem-match=misc");
    };
    if !node.device {
        return Finding::fault(format!("{path} is no device node"))
            .on(object)
            .mend(format!("rm {path} && udevadm trigger"));
    }
    match &node.open {
        Ok(()) => Finding::ok(format!("{path} can be opened (mode {:04o})", node.mode)).on(object),
        Err(error) => {
            // rdma-core's rule lets everybody in: verbs check rights themselves.
            Finding::fault(format!("this user may not open {path}, mode {:04o}: {error}", node.mode)).on(object).mend(format!("chmod 0666 {path}, and for good: SUBSYSTEM==\"infiniband_verbs|misc\", KERNEL==\"{}\", MODE=\"0666\" in /etc/udev/rules.d/90-rdma.rules", pattern(name)))
        }
    }
}

fn pattern(name: &str) -> String {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem == name { name.to_owned() } else { format!("{stem}*") }
}

/// Whether libibverbs sees what the kernel has.
fn library(facts: &Facts<'_>, device: &str) -> Option<Finding> {
    let verbs = &facts.probe.verbs;
    if let Some(error) = &verbs.error {
        return Some(
            Finding::fault(format!("libibverbs lists no devices: {error}")).on(device).mend("modprobe ib_uverbs"),
        );
    }
    match verbs.device(device) {
        None => Some(
            Finding::fault("the kernel has it, libibverbs does not: its provider is not installed")
                .on(device)
                .mend("apt install ibverbs-providers (Debian), dnf install libibverbs (Red Hat)"),
        ),
        Some(known) => known.opened.as_ref().err().map(|error| {
            Finding::fault(format!("it cannot be opened: {error}"))
                .on(device)
                .mend(format!("ls -l {DIRECTORY}; ibv_devinfo -d {device}"))
        }),
    }
}
